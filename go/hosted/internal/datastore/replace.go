package datastore

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"tenantry.dev/hosted/internal/settings"
)

const (
	beginSeconds = 60
	// What etcd's documentation adds to the revision of a snapshot if the later ones are not known.
	unknownRevisions = 1_000_000_000
)

// Client returns a client that reads and writes.
func (s *Store) Client() *clientv3.Client { return s.client().Client }

// Replace puts other objects in the place of those of a control plane: all of them, or none. The process must not run.
//
// For SQLite, it makes a new database.
//
// Clients remember revisions of the old database. The new one begins after all of them, and says that they were compacted,
// so that a watch from such a revision ends with 410, and its client lists again. A watch that went on would never
// report what is gone.
//
// Args: revision is one that clients may know although the old database does not; fill writes the objects below a prefix.
func Replace(
	ctx context.Context, given settings.Datastore, revision int64, fill func(client *clientv3.Client, prefix string) error,
) error {
	switch {
	case given.ETCD != nil:
		return replaceETCD(ctx, given, revision, fill)
	case given.SQL != nil:
		return replaceSQL(ctx, *given.SQL, revision, fill)
	}
	before, err := lastRevision(ctx, given.File)
	if err != nil {
		klog.InfoS("The database that is replaced cannot be read", "cause", err)
		before = revision + unknownRevisions
	}
	made, whole := given, given.File+".whole"
	made.File = given.File + ".new"
	unfinished := func() error { return errors.Join(discard(made.File), discard(whole)) }
	// What another try has left.
	if err := unfinished(); err != nil {
		return err
	}
	if err := build(ctx, made, whole, max(before, revision), fill); err != nil {
		return errors.Join(err, unfinished())
	}
	// The log of the old database would be taken for one of the new one.
	if err := removeLog(given.File); err != nil {
		return err
	}
	if err := os.Rename(whole, given.File); err != nil {
		return err
	}
	return errors.Join(syncFile(filepath.Dir(given.File)), unfinished())
}

// build makes a database, and a copy of it as one file.
func build(
	ctx context.Context, made settings.Datastore, whole string, after int64, fill func(*clientv3.Client, string) error,
) error {
	// SQLite writes into an empty file, and keeps its mode.
	for _, name := range []string{made.File, whole} {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	if err := begin(ctx, made, after); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	store, err := Open(ctx, made, fail)
	if err != nil {
		return err
	}
	err = fill(store.Client(), store.Prefix())
	store.Close()
	if cause := context.Cause(ctx); err == nil && cause != nil {
		err = cause
	}
	if err != nil {
		return err
	}
	// A copy has no log.
	err = within(made.File, func(database *sql.DB) error {
		_, err := database.ExecContext(ctx, "VACUUM INTO ?", whole)
		return err
	})
	if err != nil {
		return err
	}
	return syncFile(whole)
}

// lastRevision returns the last revision of a database. The end of the last connection writes its log into its file.
func lastRevision(ctx context.Context, file string) (int64, error) {
	found := int64(0)
	err := within(file, func(database *sql.DB) error {
		// Rows that were compacted have had revisions, too.
		return database.QueryRowContext(ctx,
			`SELECT MAX(COALESCE((SELECT MAX(id) FROM kine), 0), COALESCE((SELECT MAX(seq) FROM sqlite_sequence), 0))`,
		).Scan(&found)
	})
	return found, err
}

// begin makes a database whose next revision is after another one, as kine makes it.
func begin(ctx context.Context, made settings.Datastore, after int64) error {
	ctx, cancel := context.WithTimeout(ctx, beginSeconds*time.Second)
	var done sync.WaitGroup
	defer done.Wait()
	defer cancel()
	log, err := openTables(ctx, &done, made)
	if err != nil {
		return err
	}
	// kine finds its own row of the last compaction, and numbers on after it. A client that knows `after` is refused, too.
	_, err = log.DB.ExecContext(ctx, `INSERT INTO kine
		(id, name, created, deleted, create_revision, prev_revision, lease, value, old_value)
		VALUES (?, 'compact_rev_key', 1, 0, 0, ?, 0, '', NULL)`, after+1, after+1)
	return err
}

func discard(file string) error {
	if err := removeLog(file); err != nil {
		return err
	}
	return remove(file)
}

func removeLog(file string) error {
	return errors.Join(remove(file+"-wal"), remove(file+"-shm"))
}

func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func syncFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
