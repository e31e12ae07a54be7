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
	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
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

func openPostgres(ctx context.Context, done *sync.WaitGroup, connector driver.Connector) (server.Backend, changes, error) {
	pool := generic.ConnectionPoolConfig{MaxOpen: mostConnections + mostReaders}
	dialect, err := generic.OpenDB(ctx, done, "pgx", connector, pool, "$", true, nil)
	if err != nil {
		return nil, nil, err
	}
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
	// Its metrics name errors.
	dialect.ErrCode = func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
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
			return nil, nil, fmt.Errorf("tables: %w", err)
		}
	}
	log := sqllog.New(dialect, compactInterval, 0, compactTimeout, compactMinRetain, batchSize, pollBatchSize)
	return logstructured.New(log), dialect, nil
}
