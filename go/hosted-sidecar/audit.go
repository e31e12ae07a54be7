package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// chunkBytes are copied before the end of the program is looked for once more.
	chunkBytes = 64 * 1024
	// lastBytes is the most that is copied when the program is to end: more than the volume has, and never without end.
	lastBytes = 128 << 20
	// lookEvery is the time after which the log is looked at without an event. gVisor reports what a container has changed
	// in a volume to this container alone: its inotify never sees the writes of the API server.
	lookEvery = time.Second
)

// follow copies a log to out as it grows, until ctx ends: the log of this container is then the audit log of the API
// server (Kubernetes, "Logging architecture", streaming sidecar). At the end, it copies what has come since.
//
// An event of the folder only says that it has changed: several rotations may lie between two looks, and the kernel
// drops events when out is slow. A tick says nothing. So each file is known by its inode, is copied once, and in the order of rotation.
// A container that restarts begins with the oldest file that is left: no event is lost, but some are printed again.
func follow(ctx context.Context, path string, out io.Writer) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	// The folder, before it is read: a file that is created in between is reported.
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return err
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	return followed(ctx, path, out, wakes{events: watcher.Events, errors: watcher.Errors, ticks: tick.C})
}

// wakes are what a log is looked at for.
type wakes struct {
	events <-chan fsnotify.Event
	errors <-chan error
	ticks  <-chan time.Time
}

func followed(ctx context.Context, path string, out io.Writer, woken wakes) error {
	found := &logs{path: path, buffer: make([]byte, chunkBytes)}
	defer found.close()
	changed := true
	for {
		if changed {
			if err := found.look(); err != nil {
				return err
			}
		}
		if err := found.copy(ctx, out, math.MaxInt64); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			if err := found.look(); err != nil {
				return err
			}
			return found.copy(context.WithoutCancel(ctx), out, lastBytes)
		case err := <-woken.errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			changed = true
		case <-woken.ticks:
			changed = true
		case event := <-woken.events:
			changed = event.Has(fsnotify.Create | fsnotify.Rename | fsnotify.Remove)
		}
	}
}

// logs are the files of a log, the oldest first.
//
// The API server renames a log that is full to NAME-TIME.EXTENSION, creates the next one under the name NAME.EXTENSION,
// and removes the oldest ones. A file stays open while it is in the folder, so that no other one gets its inode, and
// until it is copied, so that one that is removed is not lost.
type logs struct {
	path   string
	files  []*logFile
	buffer []byte
}

type logFile struct {
	*os.File
	info fs.FileInfo
	// Whether it is no longer in the folder.
	gone bool
}

// look finds the files that are new, and those that are gone.
func (l *logs) look() error {
	// Before the folder is read: if it is renamed in between, it is found under its later name, too. Files that come
	// after it are then left to the next look, which the renaming causes.
	current, err := opened(l.path)
	if err != nil {
		return err
	}
	present, err := l.rotated()
	if current != nil {
		present = append(present, current)
	}
	for _, known := range l.files {
		known.gone = true
	}
	for _, each := range present {
		at := slices.IndexFunc(l.files, func(known *logFile) bool { return os.SameFile(known.info, each.info) })
		if at >= 0 {
			l.files[at].gone = false
			each.Close()
		} else {
			l.files = append(l.files, each)
		}
	}
	return err
}

// rotated returns the files that the API server has renamed, in the order of the times in their names.
func (l *logs) rotated() ([]*logFile, error) {
	extension := filepath.Ext(l.path)
	prefix := strings.TrimSuffix(filepath.Base(l.path), extension) + "-"
	entries, err := os.ReadDir(filepath.Dir(l.path))
	if err != nil {
		return nil, err
	}
	var found []*logFile
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), prefix) || filepath.Ext(entry.Name()) != extension {
			continue
		}
		each, err := opened(filepath.Join(filepath.Dir(l.path), entry.Name()))
		if err != nil {
			return found, err
		}
		if each != nil {
			found = append(found, each)
		}
	}
	return found, nil
}

// opened returns a file from its beginning, nil if there is none, or none that is regular: the process must not lead
// this container elsewhere by a link, or keep it with a FIFO.
func opened(path string) (*logFile, error) {
	found, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := found.Stat()
	if err != nil || !info.Mode().IsRegular() {
		found.Close()
		return nil, err
	}
	return &logFile{File: found, info: info}, nil
}

// copy copies what the files have more than before, until ctx ends, and at most so many bytes.
func (l *logs) copy(ctx context.Context, out io.Writer, most int64) error {
	for _, each := range l.files {
		for {
			if ctx.Err() != nil || most == 0 {
				return nil
			}
			read, err := each.Read(l.buffer[:min(most, chunkBytes)])
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if _, err := out.Write(l.buffer[:read]); err != nil {
				return err
			}
			most -= int64(read)
		}
	}
	l.files = slices.DeleteFunc(l.files, func(each *logFile) bool {
		if each.gone {
			each.Close()
		}
		return each.gone
	})
	return nil
}

func (l *logs) close() {
	for _, each := range l.files {
		each.Close()
	}
}
