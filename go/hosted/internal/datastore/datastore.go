// Package datastore offers a SQLite database to an API server, in the protocol of etcd.
package datastore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/sqlite"
	"github.com/k3s-io/kine/pkg/server"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"

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
	notifyInterval   = 5 * time.Second
	// API servers ask etcd for features by its version; kine has what this one has.
	emulatedVersion = "3.5.13"
	// An object of 1.5 MiB, the limit of the API server, and what surrounds it.
	largestRequest = 4 << 20
	stopSeconds    = 2
)

// Store is an open database that is served on a socket.
type Store struct {
	server *grpc.Server
	cancel context.CancelFunc
	done   *sync.WaitGroup
}

// Open opens the database, which is created if it does not exist, and serves it. If the server ends
// by itself, fail gets the cause.
func Open(ctx context.Context, given settings.Datastore, fail context.CancelCauseFunc) (*Store, error) {
	logrus.SetLevel(logrus.WarnLevel)
	// The database has its own context: the API server writes until it has ended.
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := &sync.WaitGroup{}
	// A full database refuses writes; reads and deletions go on.
	source := fmt.Sprintf("%s?%s&_pragma=max_page_count(%d)", given.File, sqlite.DefaultParams, given.MaxBytes/pageBytes)
	_, backend, err := sqlite.New(working, done, &drivers.Config{
		DataSourceName:   source,
		CompactInterval:  compactInterval,
		CompactTimeout:   compactTimeout,
		CompactMinRetain: compactMinRetain,
		CompactBatchSize: batchSize,
		PollBatchSize:    pollBatchSize,
	})
	if err == nil {
		err = backend.Start(working)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	listener, err := listen(ctx, given.Socket)
	if err != nil {
		cancel()
		return nil, err
	}
	store := &Store{
		server: grpc.NewServer(grpc.MaxRecvMsgSize(largestRequest), grpc.MaxSendMsgSize(1<<31-1)),
		cancel: cancel,
		done:   done,
	}
	server.New(backend, "unix", notifyInterval, emulatedVersion).Register(store.server)
	done.Add(1)
	go func() {
		defer done.Done()
		if err := store.server.Serve(listener); err != nil {
			fail(fmt.Errorf("datastore: %w", err))
		}
	}()
	return store, nil
}

// Close ends the server and closes the database.
func (s *Store) Close() {
	forced := time.AfterFunc(stopSeconds*time.Second, s.server.Stop)
	s.server.GracefulStop()
	forced.Stop()
	s.cancel()
	s.done.Wait()
}

// listen returns a listener that only the user of this process can connect to.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	// A process that was killed leaves its socket.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(socket, 0o600)
}
