package datastore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tenantry.dev/hosted/internal/settings"
)

const (
	// The file with the rows that go into a database of a server. It is gone afterwards.
	rowsFile = "restored.db"
	// A server has its own limit.
	mostRowBytes = 64 << 30
	columns      = "id, name, created, deleted, create_revision, prev_revision, lease, value, old_value"
)

// replaceSQL makes the rows in a file as for SQLite, and puts them in the place of those in a database at once.
func replaceSQL(
	ctx context.Context, given settings.SQL, revision int64, fill func(*clientv3.Client, string) error,
) error {
	database, err := prepare(ctx, given)
	if err != nil {
		return err
	}
	defer database.Close()
	before := int64(0)
	if err := database.QueryRowContext(ctx, `SELECT COALESCE(MAX(id), 0) FROM kine`).Scan(&before); err != nil {
		return err
	}
	made := settings.Datastore{File: rowsFile + ".new", MaxBytes: mostRowBytes}
	unfinished := func() error { return errors.Join(discard(made.File), discard(rowsFile)) }
	// What another try has left.
	if err := unfinished(); err != nil {
		return err
	}
	err = build(ctx, made, rowsFile, max(before, revision), fill)
	if err == nil {
		err = within(rowsFile, func(rows *sql.DB) error {
			if given.Driver == settings.Postgres {
				return intoPostgres(ctx, rows, database)
			}
			return intoMySQL(ctx, rows, database)
		})
	}
	return errors.Join(err, unfinished())
}

// prepare makes kine's tables, if the database is this control plane's.
func prepare(ctx context.Context, given settings.SQL) (*sql.DB, error) {
	opening, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	_, _, opened, err := openSQL(opening, &done, given, 1)
	if err == nil {
		opened()
	}
	cancel()
	done.Wait()
	if err != nil {
		return nil, err
	}
	password, err := os.ReadFile(given.PasswordFile)
	if err != nil {
		return nil, err
	}
	connector, err := connectorOf(given, strings.TrimSuffix(string(password), "\n"))
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// intoPostgres replaces the rows in one transaction, which has the sequence of their ids, too.
func intoPostgres(ctx context.Context, rows, database *sql.DB) error {
	change, err := database.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	// After a commit, it does nothing.
	defer change.Rollback() //nolint:errcheck
	if _, err := change.ExecContext(ctx, `TRUNCATE kine`); err != nil {
		return err
	}
	last, err := copyRows(ctx, rows, change, `INSERT INTO kine (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)
	if err != nil {
		return err
	}
	var sequence string
	if err := change.QueryRowContext(ctx, `SELECT pg_get_serial_sequence('kine', 'id')`).Scan(&sequence); err != nil {
		return err
	}
	// Unlike setval, it is undone with the transaction. The server has quoted the name.
	if _, err := change.ExecContext(ctx, fmt.Sprintf(`ALTER SEQUENCE %s RESTART WITH %d`, sequence, last+1)); err != nil {
		return err
	}
	return change.Commit()
}

// intoMySQL makes another table, and exchanges them: MySQL counts ids on, even if a transaction is undone.
func intoMySQL(ctx context.Context, rows, database *sql.DB) error {
	begin := []string{
		`DROP TABLE IF EXISTS kine_restored`, `DROP TABLE IF EXISTS kine_replaced`, `CREATE TABLE kine_restored LIKE kine`,
	}
	if err := execute(ctx, database, begin...); err != nil {
		return err
	}
	change, err := database.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer change.Rollback() //nolint:errcheck
	insert := `INSERT INTO kine_restored (` + columns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	if _, err := copyRows(ctx, rows, change, insert); err != nil {
		return err
	}
	if err := change.Commit(); err != nil {
		return err
	}
	return execute(ctx, database,
		`RENAME TABLE kine TO kine_replaced, kine_restored TO kine`, `DROP TABLE kine_replaced`)
}

func execute(ctx context.Context, database *sql.DB, statements ...string) error {
	for _, each := range statements {
		if _, err := database.ExecContext(ctx, each); err != nil {
			return fmt.Errorf("%s: %w", each, err)
		}
	}
	return nil
}

// copyRows writes all rows of a file of SQLite, and returns the last id.
func copyRows(ctx context.Context, rows *sql.DB, to *sql.Tx, insert string) (int64, error) {
	written, err := to.PrepareContext(ctx, insert)
	if err != nil {
		return 0, err
	}
	defer written.Close()
	found, err := rows.QueryContext(ctx, `SELECT `+columns+` FROM kine ORDER BY id`)
	if err != nil {
		return 0, err
	}
	defer found.Close()
	last := int64(0)
	for found.Next() {
		var id, created, deleted, createRevision, previous, lease int64
		var name string
		var value, old []byte
		if err := found.Scan(&id, &name, &created, &deleted, &createRevision, &previous, &lease, &value, &old); err != nil {
			return 0, err
		}
		if _, err := written.ExecContext(
			ctx, id, name, created, deleted, createRevision, previous, lease, value, old); err != nil {
			return 0, fmt.Errorf("%q: %w", name, err)
		}
		last = id
	}
	return last, found.Err()
}
