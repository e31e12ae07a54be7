package activity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"
)

// A question is the first line of a connection; the answer is the only line of it.
type question struct {
	// IdleSeconds has the answer wait until no client has been active for so long; without it, the answer comes at once.
	IdleSeconds *int64 `json:"idleSeconds,omitempty"`
}

type answer struct {
	// OpenRequests are those of clients, watches included.
	OpenRequests int `json:"openRequests"`
	// IdleSeconds are those since the last of them ended.
	IdleSeconds int64 `json:"idleSeconds"`
	// NextEvent is RFC 3339: see NextEvent.
	NextEvent string `json:"nextEvent,omitempty"`
	// Error is why the next event is not known.
	Error string `json:"error,omitempty"`
	// FormerClients have certificates of authorities that are being replaced.
	FormerClients []formerClient `json:"formerClients,omitempty"`
}

const (
	mostBytes   = 1024
	askedWithin = 10 * time.Second
	listsWithin = 30 * time.Second
)

// Listen returns a Unix socket that only this user can connect to; it replaces the one of an earlier process.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// The folder admits no other user before, either.
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// Serve answers questions until ctx ends.
func (t *Tracker) Serve(
	ctx context.Context, listener net.Listener, events func(context.Context, time.Time) (time.Time, error),
) error {
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		connection, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("activity: %w", err)
		}
		go t.answer(ctx, connection, events)
	}
}

func (t *Tracker) answer(
	ctx context.Context, connection net.Conn, events func(context.Context, time.Time) (time.Time, error),
) {
	defer connection.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = connection.SetReadDeadline(time.Now().Add(askedWithin))
	buffer := make([]byte, mostBytes)
	var asked question
	length, err := connection.Read(buffer)
	if err != nil || json.Unmarshal(buffer[:length], &asked) != nil {
		return
	}
	if asked.IdleSeconds != nil {
		_ = connection.SetReadDeadline(time.Time{})
		// Nothing else is read: the end of the connection ends the wait.
		go func() {
			_, _ = connection.Read(buffer)
			cancel()
		}()
		if t.Wait(ctx, time.Duration(min(*asked.IdleSeconds, maxSeconds))*time.Second) != nil {
			return
		}
	}
	var found answer
	listing, done := context.WithTimeout(ctx, listsWithin)
	defer done()
	next, err := events(listing, time.Now())
	if err != nil {
		found.Error = err.Error()
	} else if !next.IsZero() {
		found.NextEvent = next.UTC().Format(time.RFC3339)
	}
	open, idle := t.State()
	found.OpenRequests, found.IdleSeconds = open, int64(idle/time.Second)
	found.FormerClients = t.former.list()
	line, err := json.Marshal(found)
	if err != nil {
		return
	}
	_, _ = connection.Write(append(line, '\n'))
}
