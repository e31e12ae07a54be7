package sockets

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// unserved is the error of a Unix socket that is not there.
func unserved(t *testing.T) error {
	t.Helper()
	_, err := To(filepath.Join(t.TempDir(), "s"))(t.Context(), "", "")
	if !isUnserved(err) {
		t.Fatal(err)
	}
	return err
}

func TestAConnectionWaitsForTheProcess(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	tries := make(chan struct{})
	dial := Await(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := To(socket)(ctx, network, address)
		if err != nil {
			tries <- struct{}{}
		}
		return conn, err
	})
	connected := make(chan error)
	go func() {
		conn, err := dial(t.Context(), "", "")
		if err == nil {
			conn.Close()
		}
		connected <- err
	}()
	<-tries
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for {
		select {
		case <-tries: // one more may have begun before the process listened
		case err := <-connected:
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

func TestASocketThatAProcessHasLeftIsWaitedFor(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	if _, err := To(socket)(t.Context(), "", ""); !isUnserved(err) {
		t.Error(err)
	}
}

func TestAConnectionDoesNotWaitWithoutEnd(t *testing.T) {
	last := unserved(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := Await(func(context.Context, string, string) (net.Conn, error) { return nil, last })(t.Context(), "", "")
		if !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		if waited := time.Since(began); waited < patience || waited > patience+interval {
			t.Errorf("it has waited for %s", waited)
		}
	})
}

func TestTheEndOfARequestEndsTheWait(t *testing.T) {
	last := unserved(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		Await(func(context.Context, string, string) (net.Conn, error) { return nil, last })(ctx, "", "")
		if waited := time.Since(began); waited > time.Second+interval {
			t.Errorf("it has waited for %s", waited)
		}
	})
}

func TestOtherErrorsAreReturnedAtOnce(t *testing.T) {
	tries := 0
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrNotExist}
	_, err := Await(func(context.Context, string, string) (net.Conn, error) {
		tries++
		return nil, refused
	})(t.Context(), "", "")
	if !errors.Is(err, refused) || tries != 1 {
		t.Error(tries, err)
	}
}
