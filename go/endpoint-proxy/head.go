package main

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// handshakeRecord begins every TLS connection (RFC 8446, 5.1: the type of a record, 22).
const handshakeRecord = 22

// headBytes is how much of a client that is held is read: the rest stays in the kernel.
const headBytes = 1

// head reads the first bytes of a client that is held. They are not lost: who forwards the client sends them first.
type head struct {
	// Closed once there are bytes, or the client is gone.
	done chan struct{}

	client *net.TCPConn
	end    chan struct{}
	once   sync.Once
	bytes  []byte
	err    error
}

func readHead(client *net.TCPConn) *head {
	made := &head{client: client, end: make(chan struct{})}
	made.done = made.end
	go func() {
		defer close(made.end)
		buffer := make([]byte, headBytes)
		n, err := client.Read(buffer)
		made.bytes, made.err = buffer[:n], err
	}()
	return made
}

// readFirst returns the first bytes of a client; none if there are none in time, or if they begin no TLS.
func readFirst(client *net.TCPConn, within time.Duration) []byte {
	read := readHead(client)
	select {
	case <-read.done:
	case <-time.After(within):
	}
	first, err := read.stop()
	if err != nil || len(first) == 0 || first[0] != handshakeRecord {
		return nil
	}
	return first
}

// stop ends the reading. It returns what was read, and why the client is gone, nil if it is not.
func (h *head) stop() ([]byte, error) {
	h.once.Do(func() {
		// A deadline in the past ends the reading, but loses nothing.
		_ = h.client.SetReadDeadline(time.Unix(1, 0))
		<-h.end
		_ = h.client.SetReadDeadline(time.Time{})
	})
	if errors.Is(h.err, os.ErrDeadlineExceeded) {
		return nil, nil
	}
	return h.bytes, h.err
}
