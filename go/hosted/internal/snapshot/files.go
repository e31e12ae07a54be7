package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// Socket is where a process gives its snapshots, in its folder, which only its own user enters.
const Socket = "snapshot.sock"

const (
	lockFile = "process.lock"
	// A reader that takes nothing for so long is gone.
	patience = time.Minute
)

// ErrRuns says that a process has the folder.
var ErrRuns = errors.New("the control plane runs")

// Lock takes the working directory for this process until it ends: two never write to one database.
//
// Args: wait has it wait for a process that has the folder, instead of ErrRuns.
func Lock(wait bool) (io.Closer, error) {
	file, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	if err := syscall.Flock(int(file.Fd()), how); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrRuns
		}
		return nil, err
	}
	return file, nil
}

// Serve gives a snapshot to each connection to the socket, one after the other, until ctx ends.
func Serve(ctx context.Context, keys Keys, about Header) error {
	// One of a process that was killed: this one has the lock.
	if err := os.Remove(Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", Socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(Socket, 0o600); err != nil {
		listener.Close()
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				if ctx.Err() == nil {
					klog.ErrorS(err, "No snapshots are given any more")
				}
				return
			}
			if _, err := keys.Take(ctx, about, patient{connection}); err != nil {
				klog.ErrorS(err, "A snapshot could not be given")
			}
			connection.Close()
		}
	}()
	return nil
}

// patient ends a connection whose reader has gone.
type patient struct{ net.Conn }

func (p patient) Write(content []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return p.Conn.Write(content)
}

// Fetch copies a snapshot of the process that runs in the working directory.
func Fetch(ctx context.Context, to io.Writer) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", Socket)
	if err != nil {
		return fmt.Errorf("the control plane runs, and gives no snapshot yet: %w", err)
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	_, err = io.Copy(to, connection)
	return err
}

// Write creates a file that is there only as a whole snapshot, with mode 0600.
func Write(file, kubernetes string, fill func(io.Writer) error) (Header, error) {
	made, err := os.CreateTemp(filepath.Dir(file), ".snapshot-*")
	if err != nil {
		return Header{}, err
	}
	defer os.Remove(made.Name())
	err = fill(made)
	if err == nil {
		err = made.Sync()
	}
	if err := errors.Join(err, made.Close()); err != nil {
		return Header{}, err
	}
	found, err := Verify(made.Name(), kubernetes)
	if err != nil {
		return found, fmt.Errorf("the control plane could not finish it, and its log has the reason: %w", err)
	}
	return found, os.Rename(made.Name(), file)
}
