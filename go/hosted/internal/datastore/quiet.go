package datastore

import (
	"context"
	"database/sql"
	"sync"

	"github.com/k3s-io/kine/pkg/server"
)

// quiet keeps kine's log of changes from asking the database once a second whether another process has written to it.
// Only for databases to which this process alone writes.
//
//	Insert ─► revision ─► written ─► After (of the log's poll) ─► the database
type quiet struct {
	server.Dialect

	lock sync.Mutex
	// written is the largest revision that this process has written; more is closed when it grows.
	written int64
	more    chan struct{}
}

func newQuiet(dialect server.Dialect) *quiet {
	return &quiet{Dialect: dialect, more: make(chan struct{})}
}

// Insert is as server.Dialect has it. kine writes all revisions with it, except those that fill gaps between them.
func (q *quiet) Insert(
	ctx context.Context, key string, create, remove bool, createRevision, previousRevision, ttl int64, value []byte,
) (int64, error) {
	revision, err := q.Dialect.Insert(ctx, key, create, remove, createRevision, previousRevision, ttl, value)
	if err == nil {
		q.lock.Lock()
		defer q.lock.Unlock()
		if revision > q.written {
			q.written = revision
			close(q.more)
			q.more = make(chan struct{})
		}
	}
	return revision, err
}

// After is as server.Dialect has it, and waits for the next revision if it is the log's poll that asks.
func (q *quiet) After(ctx context.Context, key, end string, revision, limit int64) (*sql.Rows, error) {
	if key == "" && limit == pollBatchSize {
		if err := q.wait(ctx, revision); err != nil {
			return nil, err
		}
	}
	return q.Dialect.After(ctx, key, end, revision, limit)
}

// wait returns when there may be a revision after another one.
func (q *quiet) wait(ctx context.Context, revision int64) error {
	for {
		q.lock.Lock()
		written, more := q.written, q.more
		q.lock.Unlock()
		if written > revision {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-more:
		}
	}
}
