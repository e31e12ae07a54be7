// Command hosted is a Kubernetes control plane in one process: an API server, the controllers that
// need no nodes, and SQLite as the datastore.
//
//	hosted SETTINGS
//
// SETTINGS is a JSON file, see internal/settings; the names of files in it are relative to its folder,
// which becomes the working directory: paths of Unix sockets are short. The process ends as soon as one of its parts ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics in /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info

	"tenantry.dev/hosted/internal/datastore"
	"tenantry.dev/hosted/internal/plane"
	"tenantry.dev/hosted/internal/settings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: hosted SETTINGS")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "hosted:", err)
		os.Exit(1)
	}
}

func run(file string) error {
	given, err := settings.Read(file)
	if err != nil {
		return err
	}
	if err := os.Chdir(filepath.Dir(file)); err != nil {
		return err
	}
	asked, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, fail := context.WithCancelCause(asked)
	defer fail(nil)
	store, err := datastore.Open(ctx, given.Datastore, fail)
	if err != nil {
		return fmt.Errorf("datastore %s: %w", given.Datastore.File, err)
	}
	// The API server writes until its end.
	defer store.Close()
	err = plane.Run(ctx, given, fail)
	if asked.Err() != nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}
