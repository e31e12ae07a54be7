package prebuilt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	"tenantry.dev/hosted/internal/datastore"
	"tenantry.dev/hosted/internal/settings"
)

// health is a key that kine writes itself, without an object.
const health = "health"

// needed are keys without which a control plane was stopped too early.
var needed = []string{
	apiServices + "v1.apps", "clusterrolebindings/cluster-admin", "flowschemas/exempt", "namespaces/kube-system",
	"priorityclasses/system-node-critical", "prioritylevelconfigurations/exempt", "roles/kube-system/extension-apiserver-authentication-reader",
	"serviceaccounts/default/default",
}

// Make writes the file of the control plane whose datastore a client reads.
//
// Args: folder is for what is temporary.
func Make(ctx context.Context, client *clientv3.Client, prefix, folder, file string) error {
	found, err := collect(ctx, client, prefix+"/")
	if err != nil {
		return err
	}
	for _, name := range needed {
		if _, ok := found[name]; !ok {
			return fmt.Errorf("the control plane has not written %q", name)
		}
	}
	made := settings.Datastore{File: filepath.Join(folder, "prebuilt.db"), MaxBytes: largestFile}
	err = datastore.Build(ctx, made, func(client *clientv3.Client, prefix string) error {
		return put(ctx, client, prefix, found)
	})
	if err != nil {
		return err
	}
	database, err := os.ReadFile(made.File)
	if err != nil {
		return err
	}
	return write(file, database)
}

func put(ctx context.Context, client *clientv3.Client, prefix string, values map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		key := prefix + "/" + name
		answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, string(values[name]))).Commit()
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		if !answer.Succeeded {
			return fmt.Errorf("%q is there already", name)
		}
	}
	return nil
}

func collect(ctx context.Context, client *clientv3.Client, prefix string) (map[string][]byte, error) {
	found := map[string][]byte{}
	for _, kind := range kept {
		listed, err := client.Get(ctx, prefix+kind, clientv3.WithPrefix())
		if err != nil {
			return nil, err
		}
		for _, each := range listed.Kvs {
			name := strings.TrimPrefix(string(each.Key), prefix)
			if found[name], err = stripped(name, each.Value); err != nil {
				return nil, fmt.Errorf("%q: %w", name, err)
			}
		}
	}
	return found, nil
}

// Begin makes the database of a control plane that has none from a file. A file that cannot be used is reported, and the
// control plane begins with an empty database.
func Begin(ctx context.Context, given settings.Datastore) {
	if given.Prebuilt == "" {
		return
	}
	now, prefix := time.Now(), given.Prefix()+"/"
	err := datastore.Begin(ctx, given.File, func() ([]byte, error) { return read(given.Prebuilt) },
		func(key string, value []byte) ([]byte, error) {
			name, ok := strings.CutPrefix(key, prefix)
			if !ok {
				return nil, errors.New("it is of another datastore")
			}
			if name == health {
				return value, nil
			}
			return identified(name, value, uuid.NewUUID(), now)
		})
	if err != nil {
		klog.ErrorS(err, "The database made at build is not used: the first start takes longer", "file", given.Prebuilt)
	}
}
