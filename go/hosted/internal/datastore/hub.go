package datastore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	"github.com/k3s-io/kine/pkg/server"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"
)

const (
	// A watch that is this many events behind ends, and its client begins another one from where it was.
	mostPending = 10_000
	// A watch that asked for its progress gets it this often, if there is any. etcd does it every ten minutes.
	progressInterval = 30 * time.Second
)

// hub gives the changes of the database to the watches.
//
//	kine's log ─► run: all changes, in order ─► queue of each watch ─► stream.run: what happened before the watch, then
//	                                                                   its queue
//
// The progress of a watch is an entry of its queue, so that everything before it has been sent.
type hub struct {
	backend server.Backend
	log     changes
	events  <-chan []*server.Event

	lock    sync.Mutex
	streams map[*stream]struct{}
	// seen is the revision of the last change that the streams have been given.
	seen int64
}

// changes is the part of kine's database that reads what happened in a range of keys after a revision.
type changes interface {
	After(ctx context.Context, key, end string, revision, limit int64) (*sql.Rows, error)
	GetCompactRevision(ctx context.Context) (int64, error)
}

func newHub(backend server.Backend, log changes) *hub {
	return &hub{backend: backend, log: log, streams: map[*stream]struct{}{}}
}

// start begins with the changes from now on.
func (h *hub) start(ctx context.Context) error {
	now, err := h.backend.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	h.seen = now
	h.events, err = h.follow(ctx)
	return err
}

// follow returns all changes that the streams have not been given.
func (h *hub) follow(ctx context.Context) (<-chan []*server.Event, error) {
	h.lock.Lock()
	seen := h.seen
	h.lock.Unlock()
	found := h.backend.Watch(ctx, "", "", seen+1)
	select {
	case err := <-found.Errorc:
		return nil, err
	default:
	}
	if found.CompactRevision != 0 {
		return nil, server.ErrCompacted
	}
	return found.Events, nil
}

// run gives the changes to the streams until ctx ends, or there are none any more.
func (h *hub) run(ctx context.Context) error {
	defer h.endAll()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	reported := int64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			reported = h.report(func(s *stream) bool { return s.progress }, reported)
		case batch, ok := <-h.events:
			if ok {
				h.give(batch)
				continue
			}
			if ctx.Err() != nil {
				return nil
			}
			// kine drops a reader that is too slow, which then reads what it missed.
			klog.InfoS("The datastore dropped the reader of its changes")
			var err error
			if h.events, err = h.follow(ctx); err != nil {
				return err
			}
		}
	}
}

func (h *hub) give(batch []*server.Event) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, event := range batch {
		// An entry without an event fills a gap of revisions.
		if event == nil || event.KV == nil {
			continue
		}
		h.seen = max(h.seen, event.KV.ModRevision)
		for found := range h.streams {
			if event.InRange(found.key, found.end) {
				found.push(entry{event: event})
			}
		}
	}
}

// report gives the streams that match the revision up to which they have everything, if it is after another one.
func (h *hub) report(match func(*stream) bool, after int64) int64 {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.seen <= after {
		return after
	}
	for found := range h.streams {
		if match(found) {
			found.push(entry{revision: h.seen})
		}
	}
	return h.seen
}

func (h *hub) endAll() {
	h.lock.Lock()
	defer h.lock.Unlock()
	for found := range h.streams {
		found.cancel()
	}
	clear(h.streams)
}

// add begins to queue the changes for a stream, and returns the revision of the last one that it will not get.
func (h *hub) add(found *stream) int64 {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.streams[found] = struct{}{}
	return h.seen
}

func (h *hub) remove(found *stream) {
	h.lock.Lock()
	defer h.lock.Unlock()
	delete(h.streams, found)
}

// before returns what happened after a revision, and at least everything that the hub has seen.
func (h *hub) before(ctx context.Context, key, end string, revision int64) ([]*server.Event, error) {
	rows, err := h.log.After(ctx, key, end, revision, 0)
	if err != nil {
		return nil, err
	}
	_, _, events, err := sqllog.RowsToEvents(rows, true, true)
	if err == nil {
		// RowsToEvents closes the rows, and says nothing of an error that ended them.
		err = rows.Err()
	}
	if err != nil {
		return nil, err
	}
	// Asked last, so that no compaction has come between.
	compacted, err := h.log.GetCompactRevision(ctx)
	if err != nil {
		return nil, err
	}
	if revision < compacted {
		return nil, compactedError(compacted)
	}
	return events, nil
}

type compactedError int64

func (e compactedError) Error() string { return fmt.Sprintf("revision %d is compacted", int64(e)) }

// entry is a change, or without one the progress up to a revision.
type entry struct {
	event    *server.Event
	revision int64
}

// stream is one watch.
type stream struct {
	hub      *hub
	key, end string
	progress bool
	cancel   context.CancelFunc
	out      chan clientv3.WatchResponse
	// delivered is the revision of the last change that was sent; only run uses it.
	delivered int64

	lock    sync.Mutex
	pending []entry
	// ready has an element while there are entries.
	ready chan struct{}
}

func (s *stream) push(one entry) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(s.pending) >= mostPending {
		s.cancel()
		return
	}
	s.pending = append(s.pending, one)
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *stream) take() []entry {
	s.lock.Lock()
	defer s.lock.Unlock()
	found := s.pending
	s.pending = nil
	return found
}

// run sends all changes from a revision on, or those from now on if it is 0.
func (s *stream) run(ctx context.Context, revision int64) {
	defer close(s.out)
	defer s.cancel()
	last := s.hub.add(s)
	defer s.hub.remove(s)
	if revision > 0 {
		last = revision - 1
		events, err := s.hub.before(ctx, s.key, s.end, last)
		if err != nil {
			s.fail(ctx, err)
			return
		}
		entries := make([]entry, len(events))
		for place, event := range events {
			entries[place].event = event
		}
		if last = s.send(ctx, entries, last); last < 0 {
			return
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ready:
			if last = s.send(ctx, s.take(), last); last < 0 {
				return
			}
		}
	}
}

// send sends the entries that are after a revision, and returns the revision of the last one; -1 if the watch ended.
func (s *stream) send(ctx context.Context, entries []entry, last int64) int64 {
	var answer clientv3.WatchResponse
	progress := int64(0)
	for _, one := range entries {
		if one.event == nil {
			progress = one.revision
			continue
		}
		// The range of the hub and what happened before the watch overlap.
		if one.event.KV.ModRevision <= last {
			continue
		}
		last = one.event.KV.ModRevision
		answer.Events = append(answer.Events, convert(one.event))
	}
	if len(answer.Events) > 0 {
		answer.Header.Revision = last
		s.delivered = last
		if !s.put(ctx, answer) {
			return -1
		}
	}
	// What came before the watch may be ahead of the hub.
	if progress > 0 {
		progress = max(progress, s.delivered)
	}
	if progress > 0 && progress >= last {
		if !s.put(ctx, clientv3.WatchResponse{Header: etcdserverpb.ResponseHeader{Revision: progress}}) {
			return -1
		}
	}
	return last
}

func (s *stream) put(ctx context.Context, answer clientv3.WatchResponse) bool {
	select {
	case s.out <- answer:
		return true
	case <-ctx.Done():
		return false
	}
}

// fail ends the watch. Its client begins another one, after it has read everything if the revision is compacted.
func (s *stream) fail(ctx context.Context, err error) {
	var compacted compactedError
	if errors.As(err, &compacted) {
		s.put(ctx, clientv3.WatchResponse{Canceled: true, CompactRevision: int64(compacted)})
		return
	}
	if ctx.Err() == nil {
		klog.ErrorS(err, "A watch of the datastore cannot begin", "key", s.key)
	}
}

// convert returns an event as kine's server does.
func convert(given *server.Event) *clientv3.Event {
	found := &clientv3.Event{Kv: pair(given.KV)}
	if !given.Create {
		found.PrevKv = pair(given.PrevKV)
	}
	if given.Delete {
		found.Type = mvccpb.DELETE
	}
	return found
}

func pair(given *server.KeyValue) *mvccpb.KeyValue {
	if given == nil {
		return nil
	}
	return &mvccpb.KeyValue{
		Key: []byte(given.Key), Value: given.Value, Version: given.Version, Lease: given.Lease,
		CreateRevision: given.CreateRevision, ModRevision: given.ModRevision,
	}
}
