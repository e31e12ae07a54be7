package datastore

import (
	"context"
	"errors"
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tenantry.dev/hosted/internal/settings"
)

func TestWatchesFromBeforeAReplacementEnd(t *testing.T) {
	folder := t.TempDir()
	given := settings.Datastore{File: folder + "/state.db", MaxBytes: 64 << 20}
	store, client := opened(t, folder)
	put(t, client, "/registry/a", "1", 0)
	last := put(t, client, "/registry/b", "2", 0)
	store.Close()
	fill := func(client *clientv3.Client, _ string) error {
		_, err := client.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision("/registry/a"), "=", 0)).
			Then(clientv3.OpPut("/registry/a", "1")).Commit()
		return err
	}
	if err := Replace(t.Context(), given, 1, fill); err != nil {
		t.Fatal(err)
	}
	_, client = opened(t, folder)
	answer := next(t, client.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(last+1)))
	if answer.Err() == nil || answer.CompactRevision < last {
		t.Errorf("%+v", answer)
	}
	// A watch from now on goes on.
	found, err := client.KV.Get(t.Context(), "/registry/a")
	if err != nil || found.Kvs[0].ModRevision <= last {
		t.Fatal(found, err)
	}
	from := found.Header.Revision + 1
	going := client.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(from))
	put(t, client, "/registry/c", "3", 0)
	if answer := next(t, going); len(answer.Events) != 1 || string(answer.Events[0].Kv.Key) != "/registry/c" {
		t.Errorf("%+v", answer)
	}
}

func TestADatabaseThatCannotBeReadIsReplaced(t *testing.T) {
	folder := t.TempDir()
	given := settings.Datastore{File: folder + "/state.db", MaxBytes: 64 << 20}
	none := func(*clientv3.Client, string) error { return nil }
	for number, prepare := range []func() error{
		func() error { return nil },
		func() error { return os.WriteFile(given.File, []byte("no database, of many words"), 0o600) },
		// Nothing of it may be left: it is the log of another database.
		func() error { return os.WriteFile(given.File+"-wal", []byte("of another one"), 0o600) },
	} {
		if err := prepare(); err != nil {
			t.Fatal(err)
		}
		if err := Replace(t.Context(), given, 40, none); err != nil {
			t.Fatal(number, err)
		}
		store, client := opened(t, folder)
		answer, err := client.KV.Get(t.Context(), "/registry/a")
		if err != nil || answer.Header.Revision <= unknownRevisions {
			t.Errorf("%d: %+v, %v", number, answer, err)
		}
		store.Close()
	}
}

func TestAReplacementThatFailsChangesNothing(t *testing.T) {
	folder := t.TempDir()
	given := settings.Datastore{File: folder + "/state.db", MaxBytes: 64 << 20}
	store, client := opened(t, folder)
	put(t, client, "/registry/a", "1", 0)
	store.Close()
	cause := errors.New("the file ends")
	if err := Replace(context.Background(), given, 1, func(*clientv3.Client, string) error { return cause }); !errors.Is(err, cause) {
		t.Error(err)
	}
	_, client = opened(t, folder)
	if found, err := client.KV.Get(t.Context(), "/registry/a"); err != nil || len(found.Kvs) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	for _, left := range []string{".new", ".new-wal", ".whole", ".whole-wal"} {
		if _, err := os.Stat(given.File + left); err == nil {
			t.Errorf("%s is left", left)
		}
	}
}
