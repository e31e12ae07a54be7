package datastore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	"github.com/k3s-io/kine/pkg/query"
	"github.com/k3s-io/kine/pkg/server"
	"k8s.io/klog/v2"
	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"

	"tenantry.dev/hosted/internal/settings"
)

const (
	busyMilliseconds = 30_000
	// SQLite copies its log into the database at 1000 pages, and begins it anew. A large transaction makes it longer, and
	// it stays as long without a limit.
	logBytes = 4 << 20
	// The log does not begin anew as long as one reader begins before the other has ended. Writers wait for a moment then.
	longestLog  = 64 << 20
	logInterval = time.Second
)

// tables and the statements of openTables are those of kine's own driver; a test compares them.
//
// That driver itself cannot be used: it begins to read an old table at its start, and never ends. SQLite then keeps
// everything that is written from then on in its log, which has no limit, for this reader.
var tables = []string{
	`CREATE TABLE IF NOT EXISTS kine
			(
				id INTEGER PRIMARY KEY AUTOINCREMENT,
				name TEXT,
				created INTEGER,
				deleted INTEGER,
				create_revision INTEGER,
				prev_revision INTEGER,
				lease INTEGER,
				value BLOB,
				old_value BLOB
			)`,
	`CREATE INDEX IF NOT EXISTS kine_name_index ON kine (name)`,
	`CREATE INDEX IF NOT EXISTS kine_name_id_index ON kine (name,id)`,
	`CREATE INDEX IF NOT EXISTS kine_id_deleted_index ON kine (id,deleted)`,
	`CREATE INDEX IF NOT EXISTS kine_prev_revision_index ON kine (prev_revision)`,
	`CREATE UNIQUE INDEX IF NOT EXISTS kine_name_prev_revision_uindex ON kine (name, prev_revision)`,
	`CREATE INDEX IF NOT EXISTS kine_id_compact_rev_key_with_prev_revision_index ON kine(id, name, prev_revision) WHERE name != 'compact_rev_key' AND prev_revision != 0`,
	`VACUUM`,
	// After it, which has written the whole database into the log.
	`PRAGMA wal_checkpoint(TRUNCATE)`,
}

func openSQLite(ctx context.Context, done *sync.WaitGroup, given settings.Datastore) (server.Backend, changes, error) {
	dialect, err := openTables(ctx, done, given)
	if err != nil {
		return nil, nil, err
	}
	done.Add(1)
	go func() {
		defer done.Done()
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(logInterval):
			}
			if err := boundLog(ctx, dialect.DB, given.File, longestLog); err != nil && ctx.Err() == nil {
				klog.ErrorS(err, "The log of the database is long, and could not be written into the database")
			}
		}
	}()
	log := sqllog.New(newQuiet(dialect), compactInterval, 0, compactTimeout, compactMinRetain, batchSize, pollBatchSize)
	return logstructured.New(newExact(log, dialect)), dialect, nil
}

// openTables opens a database, and makes kine's tables in it. They are closed when ctx ends, and done then.
func openTables(ctx context.Context, done *sync.WaitGroup, given settings.Datastore) (*generic.Generic, error) {
	source, err := sourceOf(given.File, url.Values{
		"_txlock": {"immediate"},
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", busyMilliseconds), "journal_mode(WAL)", "synchronous(NORMAL)",
			fmt.Sprintf("journal_size_limit(%d)", logBytes),
			// A full database refuses writes; reads and deletions go on.
			fmt.Sprintf("max_page_count(%d)", given.MaxBytes/pageBytes),
		},
	})
	if err != nil {
		return nil, err
	}
	connector, err := sqlite.NewConnector(source)
	if err != nil {
		return nil, err
	}
	dialect, err := generic.OpenDB(ctx, done, "sqlite", connector, generic.ConnectionPoolConfig{}, "?", false, nil)
	if err != nil {
		return nil, err
	}
	dialect.LastInsertID = true
	dialect.GetSizeSQL = query.New(`
		SELECT (page_count - freelist_count) * page_size
		FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()`,
		"?", false, "GetSize")
	dialect.CompactSQL = query.New(`
		DELETE FROM kine AS kv
		WHERE kv.id IN (
				SELECT kp.prev_revision AS id
				FROM kine AS kp
				WHERE
					kp.name != 'compact_rev_key' AND
					kp.prev_revision != 0 AND
					kp.id <= ?
				UNION
				SELECT kd.id AS id
				FROM kine AS kd
				WHERE
					kd.deleted != 0 AND
					kd.id <= ?)`,
		"?", false, "Compact")
	dialect.PostCompactSQL = query.New(`PRAGMA wal_checkpoint(PASSIVE)`, "?", false, "PostCompactSQL")
	dialect.TranslateErr = func(err error) error {
		var found *sqlite.Error
		if errors.As(err, &found) && found.Code() == sqlitelib.SQLITE_CONSTRAINT_UNIQUE {
			return server.ErrKeyExists
		}
		return err
	}
	// Its metrics name errors.
	dialect.ErrCode = func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	done.Add(1)
	go func() {
		defer done.Done()
		<-ctx.Done()
		if err := ended(dialect.DB); err != nil {
			klog.ErrorS(err, "The database is still open", "file", given.File)
		}
	}()
	for _, statement := range tables {
		if _, err := dialect.DB.ExecContext(ctx, statement); err != nil {
			return nil, fmt.Errorf("%s: %w", given.File, err)
		}
	}
	return dialect, nil
}

// ended waits for the last connection of a database that kine closes.
//
// Close of database/sql leaves the connections open that a statement uses, and does not say when they are closed. One
// of them still writes the log beside the database, which a restore would take for the log of the next database.
func ended(database *sql.DB) error {
	const step = time.Millisecond
	for range stopSeconds * time.Second / step {
		if database.Stats().OpenConnections == 0 {
			return nil
		}
		time.Sleep(step)
	}
	return fmt.Errorf("%d statements have not ended after %d s", database.Stats().OpenConnections, stopSeconds)
}

// boundLog writes a log that is longer than most into the database, between writers and readers.
func boundLog(ctx context.Context, database *sql.DB, file string, most int64) error {
	found, err := os.Stat(file + "-wal")
	if err != nil || found.Size() <= most {
		return err
	}
	var isBusy bool
	var pages, written int
	err = database.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&isBusy, &pages, &written)
	if err == nil && isBusy {
		err = errors.New("a reader does not end")
	}
	return err
}

// within opens a database that exists, and not as kine does, which tries for minutes to open one that is damaged.
func within(file string, use func(*sql.DB) error) error {
	source, err := sourceOf(file, url.Values{
		"mode": {"rw"}, "_pragma": {fmt.Sprintf("busy_timeout(%d)", busyMilliseconds)},
	})
	if err != nil {
		return err
	}
	database, err := sql.Open("sqlite", source)
	if err != nil {
		return err
	}
	return errors.Join(use(database), database.Close())
}

func sourceOf(file string, options url.Values) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: options.Encode()}).String(), nil
}
