// Command hosted is a Kubernetes control plane in one process: an API server, the controllers that
// need no nodes, and a datastore: SQLite, or the client of an etcd or of a SQL server.
//
//	hosted SETTINGS
//	hosted openapi FOLDER
//	hosted prebuild FILE CONTROLLER[,CONTROLLER...]
//	hosted etcd ACCESS admit USER PREFIX | remove USER PREFIX | count PREFIX | defragment | save FILE | relieve [routine]
//	hosted etcd ACCESS keep ADDRESS PROBES KEYS BACKUP
//	hosted snapshot SETTINGS FILE
//	hosted verify FILE
//	hosted restore SETTINGS FILE [foreign [KEYS]]
//
// SETTINGS is a JSON file, see internal/settings; the names of files in it are relative to its folder,
// which becomes the working directory: paths of Unix sockets are short. The process ends as soon as one of its parts ends.
// The second form writes the OpenAPI documents of the built-in kinds, which processes of this very program share. The third
// form writes the database with which they begin, see internal/prebuilt. The next two administer an etcd that control
// planes share, once or until the end; ACCESS is a JSON file, see internal/etcd. The others are about snapshots, see snapshots.go.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics in /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info

	"tenantry.dev/hosted/internal/datastore"
	"tenantry.dev/hosted/internal/encrypted"
	"tenantry.dev/hosted/internal/etcd"
	"tenantry.dev/hosted/internal/plane"
	"tenantry.dev/hosted/internal/prebuilt"
	"tenantry.dev/hosted/internal/reclaim"
	"tenantry.dev/hosted/internal/settings"
	"tenantry.dev/hosted/internal/snapshot"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2:
		reclaim.DelayFirst()
		err = run(os.Args[1])
	case len(os.Args) == 3 && os.Args[1] == "openapi":
		err = writeOpenAPI(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "prebuild":
		err = writePrebuilt(os.Args[2], os.Args[3])
	case len(os.Args) > 3 && os.Args[1] == "etcd":
		err = administer(os.Args[2], os.Args[3:])
	default:
		var known bool
		if known, err = snapshots(os.Args[1:]); !known {
			fmt.Fprintln(os.Stderr, usage)
			os.Exit(2)
		}
	}
	if err != nil {
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
	lock, err := snapshot.Lock(true)
	if err != nil {
		return err
	}
	defer lock.Close()
	asked, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, fail := context.WithCancelCause(asked)
	defer fail(nil)
	prebuilt.Begin(ctx, given.Datastore)
	store, err := datastore.Open(ctx, given.Datastore, fail)
	if err != nil {
		return fmt.Errorf("datastore %s: %w", given.Datastore, err)
	}
	// The API server writes until its end.
	defer store.Close()
	if err := snapshot.Serve(ctx, keys(store.Client(), store.Prefix()), about(given)); err != nil {
		return err
	}
	if given.Encrypted != "" {
		if err := encrypted.Rewrite(ctx, store.Client().KV, store.Prefix(), given.Encrypted); err != nil {
			return err
		}
	}
	given.Datastore = given.Datastore.Below(store.Prefix())
	err = plane.Run(ctx, given, fail)
	if asked.Err() != nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func administer(file string, arguments []string) error {
	if err := os.Chdir(filepath.Dir(file)); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return etcd.Run(ctx, filepath.Base(file), arguments)
}

// writeOpenAPI starts a control plane as far as it takes to ask it, in a folder of its own.
func writeOpenAPI(folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	given, temporary, err := throwaway()
	if temporary != "" {
		defer os.RemoveAll(temporary)
	}
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(context.Background())
	store, err := datastore.Open(ctx, given.Datastore, fail)
	if err != nil {
		return err
	}
	defer store.Close()
	defer fail(nil)
	// Nothing is served on it.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	return plane.WriteOpenAPI(ctx, given, listener, folder)
}

func writeKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	content, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: content}), 0o600)
}
