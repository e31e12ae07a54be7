package datastore

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tenantry.dev/hosted/internal/etcd"
)

const (
	// An etcd keeps the former values of keys until its next compaction, so that writes fill it by their rate, too.
	writeRate  = 1 << 20
	writeBurst = 64 << 20
	// Counting reads everything.
	countPage     = 500
	countInterval = 30 * time.Second
	// How often the allowance is read, at most; only writers read it.
	allowanceInterval = 10 * time.Second
	// The largest request must fit in.
	smallBurst = 2 * largestRequest
)

// budget keeps what one control plane writes to an etcd, which has no quota for a user, within a size and a rate.
//
// The size is what was there when it was counted last, and all that was written since; it is counted again when that is
// too much. Values that were replaced or deleted meanwhile make it too high, never too low, as long as no other process
// writes. Of several processes, each takes the others to write as much as itself: together, they stay below twice the
// size, whichever of them writes. Deletions are always possible.
type budget struct {
	etcdserverpb.KVClient
	prefix    string
	most      int64
	processes int64
	rate      *rate.Limiter

	lock    sync.Mutex
	size    int64
	counted time.Time
	allowed etcd.Allowance
	asked   time.Time
}

func newBudget(client etcdserverpb.KVClient, prefix string, most, processes int64) *budget {
	processes = max(processes, 1)
	limiter := rate.NewLimiter(rate.Limit(writeRate/processes), int(writeBurst/processes))
	return &budget{KVClient: client, prefix: prefix, most: most, processes: processes, rate: limiter}
}

// only counts the keys of another prefix from now on, which has none yet.
func (b *budget) only(prefix string) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.prefix, b.size = prefix, 0
}

func (b *budget) held() int64 {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.size
}

// count reads the size of all keys.
func (b *budget) count(ctx context.Context) error {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.read(ctx)
}

func (b *budget) read(ctx context.Context) error {
	start := b.prefix + "/"
	asked := &etcdserverpb.RangeRequest{
		Key: []byte(start), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(start)), Limit: countPage,
	}
	size := int64(0)
	for {
		page, err := b.Range(ctx, asked)
		if err != nil {
			return err
		}
		for _, each := range page.Kvs {
			size += int64(len(each.Key) + len(each.Value))
		}
		if !page.More || len(page.Kvs) == 0 {
			break
		}
		asked.Key = append(page.Kvs[len(page.Kvs)-1].Key, 0)
	}
	b.size, b.counted = size, time.Now()
	return nil
}

// ask reads what the administration of the etcd allows now. The last answer counts if there is none.
func (b *budget) ask(ctx context.Context) {
	b.lock.Lock()
	defer b.lock.Unlock()
	if time.Since(b.asked) < allowanceInterval {
		return
	}
	b.asked = time.Now()
	found, err := b.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(etcd.AllowanceKey)})
	if err != nil {
		return
	}
	allowed := etcd.Allowance{}
	if len(found.Kvs) > 0 {
		allowed = etcd.ReadAllowance(found.Kvs[0].Value)
	}
	if allowed == b.allowed {
		return
	}
	b.allowed = allowed
	if allowed.BytesPerSecond > 0 {
		b.rate.SetLimit(min(rate.Limit(allowed.BytesPerSecond), writeRate) / rate.Limit(b.processes))
		b.rate.SetBurst(smallBurst)
		return
	}
	b.rate.SetLimit(writeRate / rate.Limit(b.processes))
	b.rate.SetBurst(int(writeBurst / b.processes))
}

// spend waits until bytes may be written, and refuses them when there would be too many.
func (b *budget) spend(ctx context.Context, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if bytes > largestRequest {
		// The server refuses it.
		return nil
	}
	b.ask(ctx)
	if err := b.rate.WaitN(ctx, int(bytes)); err != nil {
		return status.Error(codes.ResourceExhausted, "this control plane writes too much at once: try again later")
	}
	b.lock.Lock()
	defer b.lock.Unlock()
	most := b.most
	if b.allowed.Bytes > 0 {
		most = min(most, b.allowed.Bytes)
	}
	bytes *= b.processes
	if b.size+bytes > most && time.Since(b.counted) > countInterval {
		if err := b.read(ctx); err != nil {
			return err
		}
	}
	if b.size+bytes > most && most < b.most {
		return status.Errorf(codes.ResourceExhausted,
			"the etcd that control planes share is nearly full, and this one has more than its part (%d MiB): delete objects, "+
				"and try again in %s", most>>20, countInterval)
	}
	if b.size+bytes > b.most {
		return status.Errorf(codes.ResourceExhausted,
			"the datastore of this control plane is full (%d MiB): delete objects, and try again in %s", b.most>>20, countInterval)
	}
	b.size += bytes
	return nil
}

func (b *budget) Put(
	ctx context.Context, asked *etcdserverpb.PutRequest, options ...grpc.CallOption,
) (*etcdserverpb.PutResponse, error) {
	if err := b.spend(ctx, weight(asked)); err != nil {
		return nil, err
	}
	return b.KVClient.Put(ctx, asked, options...)
}

func (b *budget) Txn(
	ctx context.Context, asked *etcdserverpb.TxnRequest, options ...grpc.CallOption,
) (*etcdserverpb.TxnResponse, error) {
	bytes := int64(0)
	for _, each := range append(append([]*etcdserverpb.RequestOp{}, asked.Success...), asked.Failure...) {
		bytes += weight(each.GetRequestPut())
	}
	if err := b.spend(ctx, bytes); err != nil {
		return nil, err
	}
	return b.KVClient.Txn(ctx, asked, options...)
}

func weight(asked *etcdserverpb.PutRequest) int64 {
	return int64(len(asked.GetKey()) + len(asked.GetValue()))
}
