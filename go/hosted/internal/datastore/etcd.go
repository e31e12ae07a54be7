package datastore

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc"

	"tenantry.dev/hosted/internal/etcd"
	"tenantry.dev/hosted/internal/settings"
)

// How long a process waits for its etcd at its start; another one is started then.
const etcdPatience = 30 * time.Second

// openETCD connects to an etcd. A connection that breaks later comes back by itself.
func (s *Store) openETCD(ctx context.Context, given settings.ETCD, maxBytes, processes int64) error {
	connection, err := etcd.Connect(ctx, etcd.Access{
		Socket: given.Socket, ServerName: given.ServerName, CA: given.CA, Certificate: given.Certificate, Key: given.Key,
	})
	if err != nil {
		return err
	}
	s.connection = connection
	starting, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	now, _, err := generationOf(starting, connection.KV, given.Prefix)
	if err != nil {
		return fmt.Errorf("its keys cannot be read: %w", err)
	}
	if err := tidy(ctx, connection.KV, given.Prefix, now); err != nil {
		return err
	}
	by := now.revisions()
	writes := newBudget(newPaged(renumbered{clientv3.RetryKVClient(connection), by}), given.Prefix, maxBytes, processes)
	counting, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	if err := writes.count(counting); err != nil {
		return fmt.Errorf("its keys cannot be read: %w", err)
	}
	s.prefix, s.writes = now.prefix(given.Prefix), writes
	streams := renumberedWatches{etcdserverpb.NewWatchClient(connection.ActiveConnection()), by}
	watcher := renumberedWatcher{clientv3.NewWatchFromWatchClient(streams, connection), by}
	s.client = (&sharedETCD{connection: connection, writes: writes, watcher: watcher}).client
	return install(ctx, s.client)
}

// sharedETCD makes clients that share one connection.
type sharedETCD struct {
	connection *clientv3.Client
	writes     *budget
	watcher    clientv3.Watcher
}

func (s *sharedETCD) client() *kubernetes.Client {
	client := clientv3.NewCtxClient(s.connection.Ctx())
	client.KV = clientv3.NewKVFromKVClient(s.writes, client)
	client.Lease = openLease{s.connection.Lease}
	client.Watcher = openWatcher{s.watcher}
	client.Maintenance = clientv3.NewMaintenanceFromMaintenanceClient(size{writes: s.writes}, client)
	found := &kubernetes.Client{Client: client}
	found.Kubernetes = found
	return found
}

// openLease and openWatcher stay open when one of their clients is closed: the watches of that client end by their own
// contexts.
type openLease struct{ clientv3.Lease }

func (openLease) Close() error { return nil }

type openWatcher struct{ clientv3.Watcher }

func (openWatcher) Close() error { return nil }

// size answers in place of the etcd, which gives its status to administrators only.
type size struct {
	etcdserverpb.MaintenanceClient
	writes *budget
}

func (s size) Status(context.Context, *etcdserverpb.StatusRequest, ...grpc.CallOption) (*etcdserverpb.StatusResponse, error) {
	bytes := s.writes.held()
	return &etcdserverpb.StatusResponse{Version: emulatedVersion, DbSize: bytes, DbSizeInUse: bytes}, nil
}
