package datastore

import (
	"context"
	"reflect"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watcher begins the watches of one client, which end with it.
type watcher struct {
	hub *hub

	lock    sync.Mutex
	closed  bool
	streams map[*stream]struct{}
}

func newWatcher(watches *hub) *watcher {
	return &watcher{hub: watches, streams: map[*stream]struct{}{}}
}

// Watch is as clientv3.Watcher has it, with the options that API servers use. Events always have their former values.
func (w *watcher) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	asked := clientv3.OpGet(key, options...)
	ctx, cancel := context.WithCancel(ctx)
	found := &stream{
		hub: w.hub, key: string(asked.KeyBytes()), end: string(asked.RangeBytes()), progress: wantsProgress(asked),
		cancel: cancel, out: make(chan clientv3.WatchResponse), ready: make(chan struct{}, 1),
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.closed {
		cancel()
	}
	w.streams[found] = struct{}{}
	go func() {
		found.run(ctx, asked.Rev())
		w.lock.Lock()
		defer w.lock.Unlock()
		delete(w.streams, found)
	}()
	return found.out
}

// wantsProgress reads an option that has no accessor; a test has it fail when it is renamed.
func wantsProgress(asked clientv3.Op) bool {
	return reflect.ValueOf(asked).FieldByName("progressNotify").Bool()
}

// RequestProgress has the watches of this client report their progress.
func (w *watcher) RequestProgress(context.Context) error {
	w.hub.report(func(found *stream) bool {
		w.lock.Lock()
		defer w.lock.Unlock()
		_, own := w.streams[found]
		return own && found.progress
	}, 0)
	return nil
}

// Close ends the watches.
func (w *watcher) Close() error {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.closed = true
	for found := range w.streams {
		found.cancel()
	}
	return nil
}
