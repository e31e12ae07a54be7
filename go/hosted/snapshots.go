package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	utilversion "k8s.io/component-base/version"

	"tenantry.dev/hosted/internal/datastore"
	"tenantry.dev/hosted/internal/encrypted"
	"tenantry.dev/hosted/internal/etcd"
	"tenantry.dev/hosted/internal/settings"
	"tenantry.dev/hosted/internal/snapshot"
)

const usage = `usage: hosted SETTINGS
       hosted openapi FOLDER
       hosted prebuild FILE CONTROLLER[,CONTROLLER...]
       ` + etcd.Usage + `
       hosted snapshot SETTINGS FILE
       hosted verify FILE
       hosted restore SETTINGS FILE [foreign [KEYS]]`

// snapshots runs a command that is about snapshots, and returns whether it is one. All of them write the header of the
// snapshot as JSON to their standard output.
func snapshots(arguments []string) (bool, error) {
	var found snapshot.Header
	var err error
	switch command := arguments; {
	case len(command) == 3 && command[0] == "snapshot":
		found, err = takeSnapshot(command[1], command[2])
	case len(command) == 2 && command[0] == "verify":
		found, err = snapshot.Verify(command[1], kubernetes())
	case len(command) == 3 && command[0] == "restore":
		found, err = restoreSnapshot(command[1], command[2], false, "")
	case len(command) == 4 && command[0] == "restore" && command[3] == "foreign":
		found, err = restoreSnapshot(command[1], command[2], true, "")
	case len(command) == 5 && command[0] == "restore" && command[3] == "foreign":
		found, err = restoreSnapshot(command[1], command[2], true, command[4])
	default:
		return false, nil
	}
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(os.Stdout).Encode(found)
}

func kubernetes() string { return utilversion.Get().GitVersion }

func about(given settings.Settings) snapshot.Header {
	return snapshot.Header{Kubernetes: kubernetes(), UID: given.UID}
}

func keys(client *clientv3.Client, prefix string) snapshot.Keys {
	return snapshot.Keys{KV: client.KV, Lease: client.Lease, Prefix: prefix + "/"}
}

// takeSnapshot asks the process for a snapshot, and takes it from the datastore if none runs.
func takeSnapshot(file, to string) (snapshot.Header, error) {
	given, to, err := entered(file, to)
	if err != nil {
		return snapshot.Header{}, err
	}
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	lock, err := snapshot.Lock(false)
	if errors.Is(err, snapshot.ErrRuns) {
		return snapshot.Write(to, kubernetes(), func(made io.Writer) error { return snapshot.Fetch(ctx, made) })
	}
	if err != nil {
		return snapshot.Header{}, err
	}
	defer lock.Close()
	// It would be created.
	if given.Datastore.File != "" {
		if _, err := os.Stat(given.Datastore.File); err != nil {
			return snapshot.Header{}, err
		}
	}
	store, err := datastore.Open(ctx, given.Datastore, fail)
	if err != nil {
		return snapshot.Header{}, err
	}
	defer store.Close()
	return snapshot.Write(to, kubernetes(), func(made io.Writer) error {
		_, err := keys(store.Client(), store.Prefix()).Take(ctx, about(given), made)
		return err
	})
}

// restoreSnapshot replaces all objects by those of a snapshot. The process must not run.
//
// Args: foreign allows a snapshot of another control plane. configuration is a file with an EncryptionConfiguration that has the keys
// of both; what is stored under another key than its first one is stored again; "" leaves everything as it is.
func restoreSnapshot(file, from string, foreign bool, configuration string) (snapshot.Header, error) {
	if configuration != "" {
		var err error
		if configuration, err = filepath.Abs(configuration); err != nil {
			return snapshot.Header{}, err
		}
	}
	given, from, err := entered(file, from)
	if err != nil {
		return snapshot.Header{}, err
	}
	lock, err := snapshot.Lock(false)
	if errors.Is(err, snapshot.ErrRuns) {
		return snapshot.Header{}, errors.New("the control plane runs: end it before its objects are replaced")
	}
	if err != nil {
		return snapshot.Header{}, err
	}
	defer lock.Close()
	found, err := snapshot.Verify(from, kubernetes())
	if err != nil {
		return found, err
	}
	if found.UID != given.UID && !foreign {
		return found, fmt.Errorf("the snapshot is of another control plane (uid %q, not %q)", found.UID, given.UID)
	}
	ctx := context.Background()
	return found, datastore.Replace(ctx, given.Datastore, found.Revision, func(client *clientv3.Client, prefix string) error {
		content, err := os.Open(from)
		if err != nil {
			return err
		}
		defer content.Close()
		reader, err := snapshot.NewReader(content)
		if err != nil {
			return err
		}
		defer reader.Close()
		if err := keys(client, prefix).Restore(ctx, reader); err != nil || configuration == "" {
			return err
		}
		return encrypted.Rewrite(ctx, client.KV, prefix, configuration)
	})
}

// entered reads the settings, and makes their folder the working directory.
func entered(file, other string) (settings.Settings, string, error) {
	given, err := settings.Read(file)
	if err != nil {
		return given, other, err
	}
	other, err = filepath.Abs(other)
	if err != nil {
		return given, other, err
	}
	return given, other, os.Chdir(filepath.Dir(file))
}
