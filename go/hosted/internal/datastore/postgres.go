package datastore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/query"
	"github.com/k3s-io/kine/pkg/server"
)

const uniqueViolation = "23505"

// postgresTables and the statements of openPostgres are those of kine's own driver; a test compares them.
//
// That driver cannot be used: it makes its connections itself, and uses no TLS on a Unix socket.
var postgresTables = []string{
	`CREATE TABLE IF NOT EXISTS kine
 			(
				id BIGSERIAL PRIMARY KEY,
				name text COLLATE "C",
				created INTEGER,
				deleted INTEGER,
				create_revision BIGINT,
				prev_revision BIGINT,
 				lease INTEGER,
 				value bytea,
 				old_value bytea
 			);`,
	`CREATE INDEX IF NOT EXISTS kine_name_index ON kine (name)`,
	`CREATE INDEX IF NOT EXISTS kine_name_id_index ON kine (name,id)`,
	`CREATE INDEX IF NOT EXISTS kine_id_deleted_index ON kine (id,deleted)`,
	`CREATE INDEX IF NOT EXISTS kine_prev_revision_index ON kine (prev_revision)`,
	`CREATE UNIQUE INDEX IF NOT EXISTS kine_name_prev_revision_uindex ON kine (name, prev_revision)`,
	`CREATE INDEX IF NOT EXISTS kine_list_query_index on kine(name, id DESC, deleted)`,
}

const postgresCompact = `
		DELETE FROM kine AS kv
		USING	(
			SELECT kp.prev_revision AS id
			FROM kine AS kp
			WHERE
				kp.name != 'compact_rev_key' AND
				kp.prev_revision != 0 AND
				kp.id <= $1
			UNION
			SELECT kd.id AS id
			FROM kine AS kd
			WHERE
				kd.deleted != 0 AND
				kd.id <= $2
		) AS ks
		WHERE kv.id = ks.id`

// postgresInsert is kine's InsertSQL, and takes revisions in the order in which they become visible.
//
// Without the lock, a transaction that has the smaller id may end after one with the larger id. A list between them has
// the larger id as its revision, and a watch from there never has the smaller one. The lock ends after the row is visible.
// The ids are taken after the lock: the rows of a CTE that calls a volatile function are computed first.
const postgresInsert = `
			WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtext('kine'), 1))
			INSERT INTO kine(name, created, deleted, create_revision, prev_revision, lease, value, old_value)
			SELECT ?, ?, ?, ?, ?, ?, ?, (SELECT value FROM kine WHERE id = ?) AS old_value FROM turn RETURNING id`

func openPostgres(ctx context.Context, done *sync.WaitGroup, connector driver.Connector) (*generic.Generic, error) {
	pool := generic.ConnectionPoolConfig{MaxOpen: mostConnections}
	dialect, err := generic.OpenDB(ctx, done, "pgx", connector, pool, "$", true, nil)
	if err != nil {
		return nil, err
	}
	dialect.InsertSQL = query.New(postgresInsert, "$", true, "Insert")
	dialect.GetSizeSQL = query.New(`SELECT pg_total_relation_size('kine')`, "$", true, "GetSize")
	dialect.CompactSQL = query.New(postgresCompact, "$", true, "Compact")
	dialect.FillRetryDuration = time.Millisecond + 5
	dialect.InsertRetry = func(err error) bool {
		var found *pgconn.PgError
		return errors.As(err, &found) && found.Code == uniqueViolation && found.ConstraintName == "kine_pkey"
	}
	dialect.TranslateErr = func(err error) error {
		var found *pgconn.PgError
		if errors.As(err, &found) && found.Code == uniqueViolation {
			return server.ErrKeyExists
		}
		return err
	}
	dialect.TranslateStartKeyFunc = func(startKey string) string {
		// PostgreSQL allows no NUL in UTF-8.
		if length := len(startKey); length > 0 && startKey[length-1] == 0 {
			return startKey[:length-1] + "\x1a"
		}
		return startKey
	}
	for _, statement := range postgresTables {
		if _, err := dialect.DB.ExecContext(ctx, statement); err != nil {
			return nil, fmt.Errorf("tables: %w", err)
		}
	}
	return dialect, nil
}
