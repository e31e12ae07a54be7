package datastore

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/k3s-io/kine/pkg/server"
)

// scripted is a database with a number of revisions.
type scripted struct {
	server.Dialect
	last  int64
	asked chan int64
}

func (s *scripted) Insert(context.Context, string, bool, bool, int64, int64, int64, []byte) (int64, error) {
	s.last++
	return s.last, nil
}

func (s *scripted) After(_ context.Context, _, _ string, revision, _ int64) (*sql.Rows, error) {
	s.asked <- revision
	return nil, sql.ErrNoRows
}

func TestThePollWaitsForTheNextRevision(t *testing.T) {
	database := &scripted{last: 7, asked: make(chan int64, 10)}
	found := newQuiet(database)
	ctx, cancel := context.WithCancel(context.Background())
	write := func() {
		t.Helper()
		if _, err := found.Insert(ctx, "key", true, false, 0, 0, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	poll := func(revision int64) {
		done <- func() error { _, err := found.After(ctx, "", "", revision, pollBatchSize); return err }()
	}

	go poll(7)
	// What the log does not poll is answered at once, and the poll has not asked.
	if _, err := found.After(ctx, "", "", 1, 0); !errors.Is(err, sql.ErrNoRows) {
		t.Error(err)
	}
	if revision := <-database.asked; revision != 1 {
		t.Errorf("the poll asked, although revision %d is the last", revision)
	}
	write()
	<-done
	if revision := <-database.asked; revision != 7 {
		t.Error(revision)
	}
	// A revision that was written meanwhile is not missed.
	write()
	poll(8)
	<-done

	go poll(9)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the poll does not end with its context: %v", err)
	}
}
