package datastore

import (
	"context"
	"database/sql"
	"testing"

	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	"github.com/k3s-io/kine/pkg/server"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// overtaken is a database to which another request writes right after it was read.
type overtaken struct {
	server.Dialect
	write func()
}

func (o *overtaken) ListCurrent(
	ctx context.Context, key, end string, limit int64, includeDeleted, keysOnly bool,
) (*sql.Rows, error) {
	rows, err := o.Dialect.ListCurrent(ctx, key, end, limit, includeDeleted, keysOnly)
	if write := o.write; write != nil {
		o.write = nil
		write()
	}
	return rows, err
}

func TestWhatIsWrittenAfterAnEmptyListIsInItsWatch(t *testing.T) {
	ctx, opened := tablesOf(t, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tables := opened[0]
	dialect := &overtaken{Dialect: tables}
	log := sqllog.New(dialect, compactInterval, 0, compactTimeout, compactMinRetain, batchSize, pollBatchSize)
	backend := logstructured.New(newExact(log, dialect))
	if err := backend.Start(ctx); err != nil {
		t.Fatal(err)
	}
	watches := newHub(backend, tables)
	if err := watches.start(ctx); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- watches.run(ctx) }()
	for _, key := range []string{"/a/one", "/b/one"} {
		var wrote int64
		var err error
		dialect.write = func() {
			if wrote, err = backend.Create(ctx, key, []byte("1"), 0); err != nil {
				t.Error(err)
			}
		}
		listed, found, err := backend.List(ctx, key, "", 1, 0, false)
		if err != nil || wrote == 0 {
			t.Fatal(listed, found, wrote, err)
		}
		if len(found) == 1 && listed >= wrote {
			continue // it was read again
		}
		answer := next(t, newWatcher(watches).Watch(ctx, key, clientv3.WithRev(listed+1)))
		if len(answer.Events) != 1 || answer.Events[0].Kv.ModRevision != wrote {
			t.Errorf("%s: %+v, not the revision %d after the list at %d", key, answer, wrote, listed)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
