package datastore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/k3s-io/kine/pkg/drivers/generic"
	kinemysql "github.com/k3s-io/kine/pkg/drivers/mysql"
	kinepostgres "github.com/k3s-io/kine/pkg/drivers/pgsql"
	"github.com/k3s-io/kine/pkg/server"

	"tenantry.dev/hosted/internal/settings"
)

const (
	sqlPatience = 10 * time.Second
	// PostgreSQL has 100 connections by default, for all.
	mostConnections = 8
	mostReaders     = 2
)

// openSQL opens a database of a SQL server, after it is sure that it is this control plane's.
func openSQL(ctx context.Context, done *sync.WaitGroup, given settings.SQL) (server.Backend, changes, error) {
	password, err := os.ReadFile(given.PasswordFile)
	if err != nil {
		return nil, nil, err
	}
	source, connector, err := connectorOf(given, strings.TrimSuffix(string(password), "\n"))
	if err != nil {
		return nil, nil, err
	}
	if err := own(ctx, connector, given); err != nil {
		return nil, nil, err
	}
	config := driverConfig(source)
	config.ConnectionPoolConfig = generic.ConnectionPoolConfig{MaxOpen: mostConnections}
	open, mark, numbered := kinemysql.New, "?", false
	if given.Driver == settings.Postgres {
		open, mark, numbered = kinepostgres.New, "$", true
	}
	_, backend, err := open(ctx, done, config)
	if err != nil {
		return nil, nil, err
	}
	// kine's drivers keep their log of changes to themselves; this one reads the same table.
	readers := generic.ConnectionPoolConfig{MaxOpen: mostReaders}
	log, err := generic.OpenDB(ctx, done, given.Driver, connector, readers, mark, numbered, nil)
	if err != nil {
		return nil, nil, err
	}
	// Its metrics name errors.
	log.ErrCode = func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return backend, log, nil
}

// connectorOf returns the source as kine's driver has it, and what makes the same connections.
func connectorOf(given settings.SQL, password string) (string, driver.Connector, error) {
	if given.Driver == settings.MySQL {
		config := mysql.NewConfig()
		config.Net, config.Addr, config.DBName = "unix", given.Socket, given.Database
		config.User, config.Passwd = given.User, password
		connector, err := mysql.NewConnector(config)
		return config.FormatDSN(), connector, err
	}
	folder := filepath.Dir(given.Socket)
	if !filepath.IsAbs(folder) {
		// pgx takes a folder for one only if its path is absolute, and paths of sockets must be short.
		folder = filepath.Join("/proc/self/cwd", folder)
	}
	options := url.Values{"host": {folder}, "port": {filepath.Ext(given.Socket)[1:]}, "sslmode": {"disable"}}
	source := (&url.URL{
		User: url.UserPassword(given.User, password), Path: "/" + given.Database, RawQuery: options.Encode(),
	}).String()
	// kine puts the scheme before it.
	source = strings.TrimPrefix(source, "//")
	config, err := pgx.ParseConfig("postgres://" + source)
	if err != nil {
		// The error has the password.
		return "", nil, errors.New("the user, the password or the name of the database has characters that do not work")
	}
	return source, stdlib.GetConnector(*config), nil
}

// own makes a database this control plane's, and refuses one of another: their objects would become one.
func own(ctx context.Context, connector driver.Connector, given settings.SQL) error {
	ctx, cancel := context.WithTimeout(ctx, sqlPatience)
	defer cancel()
	database := sql.OpenDB(connector)
	defer database.Close()
	if err := database.PingContext(ctx); err != nil {
		return fmt.Errorf("the server does not answer: %w", err)
	}
	create := `CREATE TABLE IF NOT EXISTS hosted_owner (id INTEGER PRIMARY KEY, owner VARCHAR(253) NOT NULL)`
	if _, err := database.ExecContext(ctx, create); err != nil {
		return err
	}
	insert := `INSERT IGNORE INTO hosted_owner (id, owner) VALUES (1, ?)`
	if given.Driver == settings.Postgres {
		insert = `INSERT INTO hosted_owner (id, owner) VALUES (1, $1) ON CONFLICT DO NOTHING`
	}
	if _, err := database.ExecContext(ctx, insert, given.Owner); err != nil {
		return err
	}
	var owner string
	if err := database.QueryRowContext(ctx, `SELECT owner FROM hosted_owner WHERE id = 1`).Scan(&owner); err != nil {
		return err
	}
	if owner != given.Owner {
		return fmt.Errorf("the database has the objects of %s: create an empty one, or drop its tables kine and hosted_owner", owner)
	}
	return nil
}
