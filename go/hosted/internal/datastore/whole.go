package datastore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tenantry.dev/hosted/internal/settings"
)

// Build makes a SQLite database as one file, whole or not at all. The folder of the file gets others meanwhile.
//
// Args: fill writes the objects below a prefix.
func Build(ctx context.Context, given settings.Datastore, fill func(client *clientv3.Client, prefix string) error) error {
	made := given
	made.File = given.File + ".new"
	whole := given.File + ".whole"
	unfinished := func() error { return errors.Join(discard(made.File), discard(whole)) }
	if err := unfinished(); err != nil {
		return err
	}
	if err := build(ctx, made, whole, 0, fill); err != nil {
		return errors.Join(err, unfinished())
	}
	if err := os.Rename(whole, given.File); err != nil {
		return err
	}
	return unfinished()
}

// Begin makes a database of the content of another one, with other values, if there is none yet.
//
// It is there as a whole or not at all: a process that ends meanwhile leaves a file that the next one deletes. A restore
// cannot run at the same time, because it takes the folder for itself.
//
// Args: read returns the content; change returns the new value of a key.
func Begin(
	ctx context.Context, file string, read func() ([]byte, error), change func(key string, value []byte) ([]byte, error),
) error {
	// What another try has left, also one of an earlier version with another result.
	made := file + ".first"
	if err := errors.Join(discard(made), remove(made+"-journal")); err != nil {
		return err
	}
	if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	content, err := read()
	if err != nil {
		return err
	}
	if err := begun(ctx, made, content, change); err != nil {
		return errors.Join(err, discard(made), remove(made+"-journal"))
	}
	// A log without its database would be taken for one of this database.
	if err := removeLog(file); err != nil {
		return err
	}
	if err := os.Rename(made, file); err != nil {
		return err
	}
	return syncFile(filepath.Dir(file))
}

func begun(
	ctx context.Context, file string, content []byte, change func(key string, value []byte) ([]byte, error),
) error {
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	// Nothing of an unfinished file is ever used, so it needs no journal; its end is written once.
	source, err := sourceOf(file, url.Values{
		"mode": {"rw"}, "_txlock": {"exclusive"}, "_pragma": {"journal_mode(OFF)", "synchronous(OFF)"},
	})
	if err != nil {
		return err
	}
	database, err := sql.Open("sqlite", source)
	if err != nil {
		return err
	}
	if err := errors.Join(rewrite(ctx, database, change), database.Close()); err != nil {
		return err
	}
	return syncFile(file)
}

// rewrite changes the values of all keys of API servers.
func rewrite(
	ctx context.Context, database *sql.DB, change func(key string, value []byte) ([]byte, error),
) error {
	transaction, err := database.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer transaction.Rollback()
	rows, err := transaction.QueryContext(ctx, `SELECT id, name, value FROM kine WHERE name LIKE '/%' ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	values := map[int64][]byte{}
	for rows.Next() {
		var id int64
		var key string
		var value []byte
		if err := rows.Scan(&id, &key, &value); err != nil {
			return err
		}
		if values[id], err = change(key, value); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	statement, err := transaction.PrepareContext(ctx, `UPDATE kine SET value = ? WHERE id = ?`)
	if err != nil {
		return err
	}
	defer statement.Close()
	for id, value := range values {
		if _, err := statement.ExecContext(ctx, value, id); err != nil {
			return err
		}
	}
	return transaction.Commit()
}
