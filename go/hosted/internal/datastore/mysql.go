package datastore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"
	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/query"
	"github.com/k3s-io/kine/pkg/server"
)

const (
	duplicateEntry   = 1062
	duplicateKeyName = 1061
)

// mysqlTables and the statements of openMySQL are those of kine's own driver; a test compares them.
//
// That driver cannot be used: it keeps its statements to itself, and the one that inserts has to take turns.
var mysqlTables = []string{
	`CREATE TABLE IF NOT EXISTS kine
			(
				id BIGINT UNSIGNED AUTO_INCREMENT,
				name VARCHAR(630) CHARACTER SET ascii,
				created INTEGER,
				deleted INTEGER,
				create_revision BIGINT UNSIGNED,
				prev_revision BIGINT UNSIGNED,
				lease INTEGER,
				value MEDIUMBLOB,
				old_value MEDIUMBLOB,
				PRIMARY KEY (id)
			);`,
	`CREATE INDEX kine_name_index ON kine (name)`,
	`CREATE INDEX kine_name_id_index ON kine (name,id)`,
	`CREATE INDEX kine_id_deleted_index ON kine (id,deleted)`,
	`CREATE INDEX kine_prev_revision_index ON kine (prev_revision)`,
	`CREATE UNIQUE INDEX kine_name_prev_revision_uindex ON kine (name, prev_revision)`,
}

const mysqlCompact = `
		DELETE kv FROM kine AS kv
		INNER JOIN (
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
				kd.id <= ?
		) AS ks
		ON kv.id = ks.id`

const mysqlSize = `
		SELECT SUM(data_length + index_length)
		FROM information_schema.TABLES
		WHERE table_schema = DATABASE() AND table_name = 'kine'`

// mysqlInsert is kine's InsertLastInsertIDSQL, and takes revisions in the order in which they become visible: see
// postgresInsert. The lock of the row is taken before the id, and ends after the new row is visible.
const mysqlInsert = `
			INSERT INTO kine(name, created, deleted, create_revision, prev_revision, lease, value, old_value)
			SELECT ?, ?, ?, ?, ?, ?, ?, (SELECT value FROM kine WHERE id = ?) AS old_value
			FROM hosted_owner WHERE hosted_owner.id = 1 FOR UPDATE`

func openMySQL(ctx context.Context, done *sync.WaitGroup, connector driver.Connector) (*generic.Generic, error) {
	pool := generic.ConnectionPoolConfig{MaxOpen: mostConnections}
	dialect, err := generic.OpenDB(ctx, done, "mysql", connector, pool, "?", false, nil)
	if err != nil {
		return nil, err
	}
	dialect.LastInsertID = true
	dialect.InsertLastInsertIDSQL = query.New(mysqlInsert, "?", false, "InsertLastInsertID")
	dialect.GetSizeSQL = query.New(mysqlSize, "?", false, "GetSize")
	dialect.CompactSQL = query.New(mysqlCompact, "?", false, "Compact")
	dialect.TranslateErr = func(err error) error {
		if isMySQL(err, duplicateEntry) {
			return server.ErrKeyExists
		}
		return err
	}
	dialect.TranslateStartKeyFunc = func(startKey string) string {
		// The order of text does not have NUL where kine needs it.
		if before, ok := strings.CutSuffix(startKey, "\x00"); ok {
			return before + "#"
		}
		return startKey
	}
	for _, statement := range mysqlTables {
		if _, err := dialect.DB.ExecContext(ctx, statement); err != nil && !isMySQL(err, duplicateKeyName) {
			return nil, fmt.Errorf("tables: %w", err)
		}
	}
	return dialect, nil
}

func isMySQL(err error, number uint16) bool {
	var found *mysql.MySQLError
	return errors.As(err, &found) && found.Number == number
}
