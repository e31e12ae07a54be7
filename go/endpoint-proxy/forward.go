package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// bufferBytes is one record of TLS.
const bufferBytes = 16 << 10

var buffers = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

// stream is a connection whose halves end separately, and that can be waited for without a buffer: of TCP, or of a Unix
// socket.
type stream interface {
	io.WriteCloser
	syscall.Conn
	CloseWrite() error
}

// forward copies bytes in both directions until both have ended, or one connection has failed, and closes both.
//
// first is what was read from the client before.
func forward(client, server stream, first []byte) {
	defer client.Close()
	defer server.Close()
	if len(first) > 0 {
		if _, err := server.Write(first); err != nil {
			return
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		copyHalf(client, server)
	}()
	copyHalf(server, client)
	<-done
}

// untilEnded returns a channel that is closed when a client ends that has sent nothing more, as one that waits for the
// answer to its ClientHello. The client may be read only after stop.
func untilEnded(client *net.TCPConn) (ended <-chan struct{}, stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	raw, err := client.SyscallConn()
	if err != nil {
		return end, func() {}
	}
	go func() {
		defer close(done)
		var isEnded bool
		var one [1]byte
		// The poller calls it again at each event.
		err := raw.Read(func(descriptor uintptr) bool {
			n, _, err := syscall.Recvfrom(int(descriptor), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			isWaiting := errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
			isEnded = n <= 0 && !isWaiting
			return isEnded
		})
		if err == nil && isEnded {
			close(end)
		}
	}()
	return end, func() {
		// A deadline that has passed ends the goroutine.
		_ = client.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = client.SetReadDeadline(time.Time{})
	}
}

// copyHalf copies one direction to its end, and closes that direction; after an error, it closes both.
func copyHalf(to, from stream) {
	err := copyBytes(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		from.Close()
		to.Close()
	}
}

// copyBytes copies until the end of the stream. A buffer is taken only while there are bytes to read: a watch that waits
// for hours costs two descriptors and two small stacks. splice(2) as in io.Copy would keep two pipes for each.
func copyBytes(to io.Writer, from syscall.Conn) error {
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	for {
		var buffer *[bufferBytes]byte
		var n int
		var failed error
		err := raw.Read(func(descriptor uintptr) bool {
			buffer = buffers.Get().(*[bufferBytes]byte)
			for {
				n, failed = syscall.Read(int(descriptor), buffer[:])
				if !errors.Is(failed, syscall.EINTR) {
					break
				}
			}
			if errors.Is(failed, syscall.EAGAIN) {
				buffers.Put(buffer)
				return false
			}
			return true
		})
		if err != nil {
			return err
		}
		if failed == nil && n > 0 {
			_, failed = to.Write(buffer[:n])
		} else if failed == nil {
			failed = io.EOF
		}
		buffers.Put(buffer)
		if errors.Is(failed, io.EOF) {
			return nil
		}
		if failed != nil {
			return failed
		}
	}
}
