// Package datastore offers a database to the API server in this process, as a client of etcd.
//
//	API server ─► clientv3.Client, one for each kind of object ─┬─► reads and writes ─► kine ─► SQLite, SQL server
//	                                                           └─► watches ◄─ hub ◄─ kine's log of changes
//	           or, in front of an etcd ─► all of them ─► budget ─► one connection
//
// No connection lies between API server and kine. A connection for each kind of object would cost 65 of them and 2,000
// goroutines, and kine's watch server wakes ten times a second for each watch.
package datastore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/server"
	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"tenantry.dev/hosted/internal/settings"
)

const (
	pageBytes = 4096
	// The values that kine's own command has by default.
	compactInterval  = 5 * time.Minute
	compactTimeout   = 5 * time.Second
	compactMinRetain = 1000
	batchSize        = 1000
	pollBatchSize    = 500
	// API servers ask etcd for features by its version; kine has what this one has.
	emulatedVersion = "3.5.13"
	stopSeconds     = 2
)

// Store is an open database that the API server of this process uses.
type Store struct {
	// calls is nil for an etcd, connection for the others; both have a client.
	calls      *calls
	connection *clientv3.Client
	// prefix begins all keys that count; writes is nil without an etcd.
	prefix string
	writes *budget
	client func() *kubernetes.Client
	cancel context.CancelFunc
	done   *sync.WaitGroup
}

// Open opens the database, which is created if it does not exist, and makes it the datastore of this process. If it
// ends by itself, fail gets the cause.
func Open(ctx context.Context, given settings.Datastore, fail context.CancelCauseFunc) (*Store, error) {
	logrus.SetLevel(logrus.WarnLevel)
	// The database has its own context: the API server writes until it has ended.
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	store := &Store{cancel: cancel, done: &sync.WaitGroup{}}
	if err := store.open(working, given, fail); err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}

func (s *Store) open(ctx context.Context, given settings.Datastore, fail context.CancelCauseFunc) error {
	s.prefix = given.Prefix()
	if given.ETCD != nil {
		return s.openETCD(ctx, *given.ETCD, given.MaxBytes, given.Processes)
	}
	var backend server.Backend
	var log changes
	var err error
	if given.SQL != nil {
		var opened func()
		if backend, log, opened, err = openSQL(ctx, s.done, *given.SQL, given.Processes); err == nil {
			// After kine's first row.
			defer opened()
		}
	} else {
		backend, log, err = openSQLite(ctx, s.done, given)
	}
	if err != nil {
		return err
	}
	if err := backend.Start(ctx); err != nil {
		return err
	}
	watches := newHub(backend, log)
	if err := watches.start(ctx); err != nil {
		return err
	}
	s.done.Add(1)
	go func() {
		defer s.done.Done()
		if err := watches.run(ctx); err != nil {
			fail(fmt.Errorf("datastore: %w", err))
		}
	}()
	// Only kine's watch server, which is not used, needs the scheme and the interval.
	s.calls = &calls{server: server.New(backend, "", 0, emulatedVersion)}
	s.client = (&clients{calls: s.calls, watches: watches}).client
	return install(ctx, s.client)
}

// Prefix begins all keys of the control plane, without a slash at its end. It is another one after each restore into an etcd.
func (s *Store) Prefix() string { return s.prefix }

// Close waits for reads and writes that have begun, and closes the database.
func (s *Store) Close() {
	if s.calls != nil {
		s.calls.close(stopSeconds * time.Second)
	}
	s.cancel()
	if s.connection != nil {
		s.connection.Close()
	}
	s.done.Wait()
}
