package datastore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	_ "unsafe" // go:linkname

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	_ "k8s.io/apiserver/pkg/storage/storagebackend/factory"

	"github.com/k3s-io/kine/pkg/server"
)

// The largest message that a client of etcd sends; an object has at most 1.5 MiB.
const largestRequest = 2 << 20

// newETCD3Client is how the API server gets a client for a kind of object. It has no exported way to replace it.
//
//go:linkname newETCD3Client k8s.io/apiserver/pkg/storage/storagebackend/factory.newETCD3Client
var newETCD3Client func(storagebackend.TransportConfig) (*kubernetes.Client, error)

// clients makes clients of the database.
type clients struct {
	calls   *calls
	watches *hub
}

// install makes the API server in this process use a database.
func install(ctx context.Context, client func() *kubernetes.Client) error {
	if newETCD3Client == nil {
		return errors.New("this version of k8s.io/apiserver makes its clients of etcd in another way")
	}
	newETCD3Client = func(storagebackend.TransportConfig) (*kubernetes.Client, error) { return client(), nil }
	// The API server asks each address of its clients, of which these have none, whether it may request progress.
	feature.DefaultFeatureSupportChecker.CheckClient(ctx, &addressed{client()}, storage.RequestWatchProgress)
	return nil
}

// addressed is a client with an address.
type addressed struct{ *kubernetes.Client }

func (*addressed) Endpoints() []string { return []string{"store"} }

func (c *clients) client() *kubernetes.Client {
	client := clientv3.NewCtxClient(context.Background())
	client.KV = clientv3.NewKVFromKVClient(c.calls, client)
	client.Lease = clientv3.NewLeaseFromLeaseClient(leases{calls: c.calls}, client, time.Second)
	client.Maintenance = clientv3.NewMaintenanceFromMaintenanceClient(maintenance{calls: c.calls}, client)
	client.Watcher = newWatcher(c.watches)
	found := &kubernetes.Client{Client: client}
	found.Kubernetes = found
	return found
}

// calls gives the requests of clients to kine's server, as a connection of gRPC would.
type calls struct {
	server *server.KVServerBridge
	// Each call holds it for reading.
	running sync.RWMutex
	closed  bool
}

func (c *calls) close(patience time.Duration) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.running.Lock()
		c.closed = true
		c.running.Unlock()
	}()
	select {
	case <-stopped:
	case <-time.After(patience):
	}
}

func do[Q, R any](ctx context.Context, c *calls, method func(context.Context, *Q) (*R, error), asked *Q) (*R, error) {
	c.running.RLock()
	defer c.running.RUnlock()
	if c.closed {
		return nil, status.Error(codes.Unavailable, "the datastore is closed")
	}
	answer, err := method(ctx, asked)
	if err == nil {
		return answer, nil
	}
	if _, ok := status.FromError(err); ok {
		return nil, err
	}
	return nil, status.FromContextError(err).Err()
}

func (c *calls) Range(
	ctx context.Context, asked *etcdserverpb.RangeRequest, _ ...grpc.CallOption,
) (*etcdserverpb.RangeResponse, error) {
	return do(ctx, c, c.server.Range, asked)
}

func (c *calls) Put(
	ctx context.Context, asked *etcdserverpb.PutRequest, _ ...grpc.CallOption,
) (*etcdserverpb.PutResponse, error) {
	if asked.Size() > largestRequest {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	return do(ctx, c, c.server.Put, asked)
}

func (c *calls) DeleteRange(
	ctx context.Context, asked *etcdserverpb.DeleteRangeRequest, _ ...grpc.CallOption,
) (*etcdserverpb.DeleteRangeResponse, error) {
	return do(ctx, c, c.server.DeleteRange, asked)
}

func (c *calls) Txn(
	ctx context.Context, asked *etcdserverpb.TxnRequest, _ ...grpc.CallOption,
) (*etcdserverpb.TxnResponse, error) {
	if asked.Size() > largestRequest {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	return do(ctx, c, c.server.Txn, asked)
}

func (c *calls) Compact(
	ctx context.Context, asked *etcdserverpb.CompactionRequest, _ ...grpc.CallOption,
) (*etcdserverpb.CompactionResponse, error) {
	return do(ctx, c, c.server.Compact, asked)
}

// leases and maintenance have the calls that API servers make; the embedded interface is nil.
type leases struct {
	etcdserverpb.LeaseClient
	calls *calls
}

func (l leases) LeaseGrant(
	ctx context.Context, asked *etcdserverpb.LeaseGrantRequest, _ ...grpc.CallOption,
) (*etcdserverpb.LeaseGrantResponse, error) {
	return do(ctx, l.calls, l.calls.server.LeaseGrant, asked)
}

type maintenance struct {
	etcdserverpb.MaintenanceClient
	calls *calls
}

func (m maintenance) Status(
	ctx context.Context, asked *etcdserverpb.StatusRequest, _ ...grpc.CallOption,
) (*etcdserverpb.StatusResponse, error) {
	answer, err := do(ctx, m.calls, m.calls.server.Status, asked)
	if err != nil {
		return nil, fmt.Errorf("size of the database: %w", err)
	}
	return answer, nil
}
