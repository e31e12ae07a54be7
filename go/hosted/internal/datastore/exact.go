package datastore

import (
	"context"
	"errors"

	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	"github.com/k3s-io/kine/pkg/server"
)

// exact is kine's log of changes, with empty lists that are of the revision that they name.
//
// kine's own reads the revision of an empty list after the list, from the memory of this process. What was written in
// between is in no list, and a watch from that revision on does not have it either: its reader never learns of it. And
// the revision may be before writes that have been confirmed, of this process or of others.
type exact struct {
	*sqllog.SQLLog
	dialect server.Dialect
}

func newExact(log *sqllog.SQLLog, dialect server.Dialect) *exact {
	return &exact{SQLLog: log, dialect: dialect}
}

// List is as logstructured.Log has it.
func (e *exact) List(
	ctx context.Context, key, end string, limit, revision int64, includeDeleted, keysOnly bool,
) (int64, server.Events, error) {
	last, events, err := e.SQLLog.List(ctx, key, end, limit, revision, includeDeleted, keysOnly)
	if len(events) > 0 || (err != nil && !errors.Is(err, server.ErrFutureRev)) {
		return last, events, err
	}
	// The rows of an empty list do not have the revision. It is read before the list, so that nothing is between them.
	now, err := e.dialect.CurrentRevision(ctx)
	if err != nil {
		return 0, nil, err
	}
	if revision > now {
		return now, nil, server.ErrFutureRev
	}
	last, events, err = e.SQLLog.List(ctx, key, end, limit, revision, includeDeleted, keysOnly)
	if len(events) > 0 || (err != nil && !errors.Is(err, server.ErrFutureRev)) {
		return last, events, err
	}
	compacted, err := e.dialect.GetCompactRevision(ctx)
	if err != nil {
		return 0, nil, err
	}
	if revision > 0 && revision < compacted {
		return now, nil, server.ErrCompacted
	}
	return now, nil, nil
}
