package datastore

import (
	"context"
	"time"

	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	"github.com/k3s-io/kine/pkg/server"
	"k8s.io/klog/v2"
)

// lookInterval is how often a process looks for writes of the others. kine alone looks once a second.
const lookInterval = 200 * time.Millisecond

// shared is kine's log of changes of a database to which other processes write, too.
//
// kine's own takes the last revision that this process has seen for the last one.
//
//	another process ─► the database ◄─ look ─► kine's poll ─► hub ─► the watches
type shared struct{ *exact }

func newShared(log *sqllog.SQLLog, dialect server.Dialect) *shared {
	return &shared{newExact(log, dialect)}
}

// Start is as logstructured.Log has it.
func (s *shared) Start(ctx context.Context) error {
	if err := s.SQLLog.Start(ctx); err != nil {
		return err
	}
	go s.look(ctx)
	return nil
}

// CurrentRevision is as logstructured.Log has it.
func (s *shared) CurrentRevision(ctx context.Context) (int64, error) {
	return s.dialect.CurrentRevision(ctx)
}

// look has kine read what others have written. A list of its log does, because it tells the poll the last revision.
func (s *shared) look(ctx context.Context) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	seen := int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now, err := s.dialect.CurrentRevision(ctx)
		if err == nil && now > seen {
			_, _, err = s.SQLLog.List(ctx, "compact_rev_key", "", 1, 0, false, true)
			if err == nil {
				seen = now
			}
		}
		if err != nil && ctx.Err() == nil {
			klog.V(2).InfoS("The revisions of other processes cannot be read", "err", err)
		}
	}
}
