package datastore

import (
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/sqlite"

	"tenantry.dev/hosted/internal/settings"
)

// Users who update one object again and again are within the size of the database all the time.
func TestTheLogOfADatabaseStaysSmall(t *testing.T) {
	folder := t.TempDir()
	_, client := opened(t, folder)
	value := strings.Repeat("x", 16<<10)
	revision, largest := int64(0), int64(0)
	for range 2000 {
		revision = put(t, client, "/registry/configmaps/default/a", value, revision)
		found, err := os.Stat(filepath.Join(folder, "state.db-wal"))
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, found.Size())
	}
	// 64 MiB were written.
	if largest > 2*logBytes {
		t.Errorf("the log had %d bytes", largest)
	}
}

// A transaction that was too large for the limit leaves no large file behind.
func TestTheLogOfADatabaseShrinks(t *testing.T) {
	folder := t.TempDir()
	given := settings.Datastore{File: filepath.Join(folder, "state.db"), MaxBytes: 64 << 20}
	var done sync.WaitGroup
	log, err := openTables(t.Context(), &done, given)
	if err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		found, err := os.Stat(given.File + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return found.Size()
	}
	if _, err := log.DB.Exec(`INSERT INTO kine (name, value) VALUES ('a', zeroblob(?))`, 4*logBytes); err != nil {
		t.Fatal(err)
	}
	if size() < 4*logBytes {
		t.Fatalf("the log has %d bytes", size())
	}
	// The next one begins the log anew.
	if _, err := log.DB.Exec(`INSERT INTO kine (name, value) VALUES ('b', '')`); err != nil {
		t.Fatal(err)
	}
	if size() > logBytes {
		t.Errorf("the log has %d bytes", size())
	}
}

// Readers that overlap keep the log from beginning anew, however short each of them is.
func TestReadersDoNotKeepTheLogGrowing(t *testing.T) {
	given := settings.Datastore{File: filepath.Join(t.TempDir(), "state.db"), MaxBytes: 64 << 20}
	var done sync.WaitGroup
	log, err := openTables(t.Context(), &done, given)
	if err != nil {
		t.Fatal(err)
	}
	var before *sql.Tx
	// next begins to read, and only then ends the reader before.
	next := func() {
		reader, err := log.DB.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
		if err != nil {
			t.Error(err)
			return
		}
		var count int
		if err := reader.QueryRow(`SELECT COUNT(*) FROM kine`).Scan(&count); err != nil {
			t.Error(err)
		}
		if before != nil {
			before.Rollback()
		}
		before = reader
	}
	for range 64 {
		next()
		if _, err := log.DB.Exec(`INSERT INTO kine (name, value) VALUES ('a', zeroblob(?))`, logBytes/16); err != nil {
			t.Fatal(err)
		}
	}
	size := func() int64 {
		found, err := os.Stat(given.File + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return found.Size()
	}
	if size() < 4*logBytes {
		t.Fatalf("the log has %d bytes", size())
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			next()
			select {
			case <-stop:
				before.Rollback()
				return
			default:
			}
		}
	}()
	if err := boundLog(t.Context(), log.DB, given.File, logBytes); err != nil {
		t.Error(err)
	}
	if size() > logBytes {
		t.Errorf("the log has %d bytes", size())
	}
	close(stop)
	<-stopped
}

// An upgrade of kine that changes its tables must fail here, and not at a customer.
func TestTheTablesAreThoseOfKine(t *testing.T) {
	var done sync.WaitGroup
	given := settings.Datastore{File: filepath.Join(t.TempDir(), "state.db"), MaxBytes: 64 << 20}
	ours, err := openTables(t.Context(), &done, given)
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(t.TempDir(), "state.db") + "?" + sqlite.DefaultParams
	_, theirs, err := sqlite.NewVariant(t.Context(), &done, "sqlite3", &drivers.Config{DataSourceName: source})
	if err != nil {
		t.Fatal(err)
	}
	if found, wanted := schemaOf(t, ours.DB), schemaOf(t, theirs.DB); !slices.Equal(found, wanted) {
		t.Errorf("%q, and not %q", found, wanted)
	}
	for name, queries := range map[string][2]string{
		"GetSizeSQL": {ours.GetSizeSQL.Query, theirs.GetSizeSQL.Query},
		"CompactSQL": {ours.CompactSQL.Query, theirs.CompactSQL.Query},
	} {
		if queries[0] != queries[1] {
			t.Errorf("%s is %q, and not %q", name, queries[0], queries[1])
		}
	}
	if ours.LastInsertID != theirs.LastInsertID || ours.LockWrites != theirs.LockWrites {
		t.Errorf("%+v, and not %+v", ours, theirs)
	}
	for name, functions := range map[string][2]bool{
		"Retry":                 {ours.Retry == nil, theirs.Retry == nil},
		"InsertRetry":           {ours.InsertRetry == nil, theirs.InsertRetry == nil},
		"TranslateStartKeyFunc": {ours.TranslateStartKeyFunc == nil, theirs.TranslateStartKeyFunc == nil},
	} {
		if functions[0] != functions[1] {
			t.Errorf("only one has %s", name)
		}
	}
}

func schemaOf(t *testing.T, database *sql.DB) []string {
	t.Helper()
	rows, err := database.Query(`SELECT name || ': ' || COALESCE(sql, '') FROM sqlite_master ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var each string
		if err := rows.Scan(&each); err != nil {
			t.Fatal(err)
		}
		found = append(found, strings.Join(strings.Fields(each), " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}
