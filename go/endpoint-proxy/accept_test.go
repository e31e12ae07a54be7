package main

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// exhausted is a listener of a process that has no descriptor for its first connection.
type exhausted struct {
	net.Listener
	hasFailed bool
}

func (l *exhausted) Accept() (net.Conn, error) {
	if !l.hasFailed {
		l.hasFailed = true
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestAListenerThatFailsOnceGoesOnUntilItIsClosed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	check(t, err)
	defer client.Close()
	served := 0
	failing := &exhausted{Listener: listener}
	err = acceptAll("a test", failing.Accept, func(connection net.Conn) {
		served++
		connection.Close()
		listener.Close()
	})
	if served != 1 || !errors.Is(err, net.ErrClosed) {
		t.Fatalf("served %d, %v", served, err)
	}
}

func TestAWaiterIsServedAfterAnotherCouldNotBeAccepted(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	c.asleep("a")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.all.serveWaiters(&exhausted{Listener: listener})
	}()
	defer func() {
		listener.Close()
		<-done
	}()
	waiter, err := net.Dial("tcp", listener.Addr().String())
	check(t, err)
	defer waiter.Close()
	answer := c.sent(waiter, `{"uid":"a","until":"listening"}`)
	if got := answer(); got != "{}\n" {
		t.Fatalf("got %q", got)
	}
}
