// Package sockets connects to the Unix sockets that another process serves for this one. This process may serve clients
// a moment before the other one listens: after a start, and while a new process takes the sockets over.
package sockets

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// How long a connection waits for the other process. Clients of the API server wait longer.
	patience = 10 * time.Second
	// How often it is tried meanwhile.
	interval = 50 * time.Millisecond
)

// Dial is the function that connects to an address.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Await returns dial, which tries again while no process listens: for ten seconds, unless ctx ends before. The error is
// then that of the last try. Any other error is returned at once.
func Await(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		limit := time.NewTimer(patience)
		defer limit.Stop()
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			conn, err := dial(ctx, network, address)
			if err == nil || !isUnserved(err) {
				return conn, err
			}
			select {
			case <-ctx.Done():
				return nil, err
			case <-limit.C:
				return nil, err
			case <-ticker.C:
			}
		}
	}
}

// To returns a function that connects to one Unix socket, whatever the address.
func To(socket string) Dial {
	var dialer net.Dialer
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", socket)
	}
}

// isUnserved returns whether an error is that of a Unix socket that is not there, or that a former process has left.
// Errors of TCP are answers of a destination.
func isUnserved(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Net == "unix" &&
		(errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED))
}
