package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// follow copies a log to out as it grows, until ctx ends: the log of this container is then the audit log of the API
// server (Kubernetes, "Logging architecture", streaming sidecar).
//
// The API server renames a log that is full, and creates the next one under the same name: nothing of either is lost,
// because the rest of the former is copied first.
func follow(ctx context.Context, path string, out io.Writer) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	// The folder, before the log is opened: one that is created in between is reported.
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return err
	}
	current, err := opened(path)
	if err != nil {
		return err
	}
	defer func() { current.Close() }()
	for {
		if err := copied(out, current); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			return err
		case event := <-watcher.Events:
			if event.Name != path || !event.Has(fsnotify.Create) {
				continue
			}
			if err := copied(out, current); err != nil {
				return err
			}
			current.Close()
			if current, err = opened(path); err != nil {
				return err
			}
		}
	}
}

// opened returns a log from its beginning, nil if there is none yet.
func opened(path string) (*os.File, error) {
	found, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return found, err
}

// copied copies what a log has more than before.
func copied(out io.Writer, log *os.File) error {
	if log == nil {
		return nil
	}
	_, err := io.Copy(out, log)
	return err
}
