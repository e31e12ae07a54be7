package datastore

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	"github.com/k3s-io/kine/pkg/server"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tenantry.dev/hosted/internal/settings"
)

// process is one of several that write to a database.
type process struct {
	dialect *generic.Generic
	log     *shared
	backend server.Backend
}

// tablesOf opens a new database several times, until the returned context ends with the test.
func tablesOf(t *testing.T, times int) (context.Context, []*generic.Generic) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	given := settings.Datastore{File: filepath.Join(t.TempDir(), "state.db"), MaxBytes: 1 << 26}
	found := make([]*generic.Generic, times)
	for place := range found {
		var err error
		if found[place], err = openTables(ctx, &done, given); err != nil {
			t.Fatal(err)
		}
	}
	return ctx, found
}

// ofOneDatabase returns two of them. SQLite allows it, and needs no server.
func ofOneDatabase(t *testing.T) (process, process) {
	t.Helper()
	ctx, opened := tablesOf(t, 2)
	var found []process
	for _, dialect := range opened {
		log := newShared(
			sqllog.New(dialect, compactInterval, 0, compactTimeout, compactMinRetain, batchSize, pollBatchSize), dialect)
		backend := logstructured.New(log)
		if err := backend.Start(ctx); err != nil {
			t.Fatal(err)
		}
		found = append(found, process{dialect: dialect, log: log, backend: backend})
	}
	return found[0], found[1]
}

func TestAProcessKnowsTheRevisionsOfAnother(t *testing.T) {
	first, second := ofOneDatabase(t)
	ctx := t.Context()
	// kine has this revision in mind from here on.
	if _, _, err := first.log.List(ctx, "/none/", "/none0", 0, 0, false, false); err != nil {
		t.Fatal(err)
	}
	wrote, err := second.backend.Create(ctx, "/a/one", []byte("1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{0, wrote} {
		revision, events, err := first.log.List(ctx, "/none/", "/none0", 0, at, false, false)
		if revision < wrote || len(events) > 0 || err != nil {
			t.Errorf("at %d: %d %v %v, and the other process has %d", at, revision, events, err, wrote)
		}
	}
	if now, err := first.backend.CurrentRevision(ctx); now < wrote || err != nil {
		t.Error(now, err)
	}
	revision, found, err := first.backend.List(ctx, "/a/", "/a0", 0, 0, false)
	if revision < wrote || len(found) != 1 || err != nil {
		t.Error(revision, found, err)
	}
	if _, _, err := first.log.List(ctx, "/none/", "/none0", 0, wrote+1000, false, false); !errors.Is(err, server.ErrFutureRev) {
		t.Error(err)
	}
}

func TestAnEmptyListOfARevisionThatIsGoneSaysSo(t *testing.T) {
	first, second := ofOneDatabase(t)
	ctx := t.Context()
	for _, revision := range []int64{0, 5} {
		if err := second.dialect.SetCompactRevision(ctx, revision); err != nil {
			t.Fatal(err)
		}
		_, _, err := first.log.List(ctx, "/none/", "/none0", 0, 1, false, false)
		if isGone := errors.Is(err, server.ErrCompacted); isGone != (revision > 1) {
			t.Errorf("compacted to %d: %v", revision, err)
		}
	}
}

func TestAWatchHasTheWritesOfAnotherProcess(t *testing.T) {
	first, second := ofOneDatabase(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watches := newHub(first.backend, first.dialect)
	if err := watches.start(ctx); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- watches.run(ctx) }()
	out := newWatcher(watches).Watch(ctx, "/a/one", clientv3.WithRev(1))
	wrote, err := second.backend.Create(ctx, "/a/one", []byte("1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	answer := <-out
	if len(answer.Events) != 1 || answer.Events[0].Kv.ModRevision != wrote {
		t.Errorf("%+v, not the revision %d", answer, wrote)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
