package datastore

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

const (
	// An etcd makes each answer in memory as a whole. A page has about this many bytes, by those of the page before.
	answerBytes           = 8 << 20
	leastKeys, mostKeys   = 8, 128
	firstKeys             = 64
	pagesAtOnce, readings = 4, 3
)

// paged reads what an API server asks for at once in pages of one revision, a few at a time: an etcd that control planes
// share would need the memory for all the answers together.
type paged struct {
	etcdserverpb.KVClient
	slots chan struct{}
}

func newPaged(client etcdserverpb.KVClient) paged {
	return paged{KVClient: client, slots: make(chan struct{}, pagesAtOnce)}
}

func (p paged) Range(
	ctx context.Context, asked *etcdserverpb.RangeRequest, options ...grpc.CallOption,
) (*etcdserverpb.RangeResponse, error) {
	isOne := len(asked.RangeEnd) == 0 || (asked.Limit > 0 && asked.Limit <= leastKeys)
	isSorted := asked.SortOrder != etcdserverpb.RangeRequest_NONE || asked.SortTarget != etcdserverpb.RangeRequest_KEY
	if isOne || isSorted || asked.CountOnly || asked.KeysOnly {
		return p.KVClient.Range(ctx, asked, options...)
	}
	for reading := 1; ; reading++ {
		answer, err := p.read(ctx, asked, options...)
		// The first page may be of a revision that the etcd has compacted since.
		if !errors.Is(err, rpctypes.ErrGRPCCompacted) || asked.Revision != 0 || reading == readings {
			return answer, err
		}
	}
}

func (p paged) read(
	ctx context.Context, asked *etcdserverpb.RangeRequest, options ...grpc.CallOption,
) (*etcdserverpb.RangeResponse, error) {
	sent, keys := *asked, int64(firstKeys)
	var whole *etcdserverpb.RangeResponse
	for {
		sent.Limit = keys
		if asked.Limit > 0 {
			sent.Limit = min(keys, asked.Limit)
			if whole != nil {
				sent.Limit = min(keys, asked.Limit-int64(len(whole.Kvs)))
			}
		}
		page, err := p.page(ctx, &sent, options...)
		if err != nil {
			return nil, err
		}
		if whole == nil {
			// It has the number of all keys.
			whole = page
		} else {
			whole.Kvs, whole.More = append(whole.Kvs, page.Kvs...), page.More
		}
		isEnough := asked.Limit > 0 && int64(len(whole.Kvs)) >= asked.Limit
		if !page.More || len(page.Kvs) == 0 || isEnough {
			return whole, nil
		}
		if sent.Revision == 0 {
			sent.Revision = page.Header.Revision
		}
		sent.Key = append([]byte(nil), page.Kvs[len(page.Kvs)-1].Key...)
		sent.Key = append(sent.Key, 0)
		keys = min(max(int64(answerBytes*len(page.Kvs)/max(page.Size(), 1)), leastKeys), mostKeys)
	}
}

func (p paged) page(
	ctx context.Context, asked *etcdserverpb.RangeRequest, options ...grpc.CallOption,
) (*etcdserverpb.RangeResponse, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.slots }()
	return p.KVClient.Range(ctx, asked, options...)
}
