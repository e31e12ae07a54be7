package datastore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	"github.com/k3s-io/kine/pkg/server"

	"tenantry.dev/hosted/internal/settings"
)

const (
	sqlPatience  = 10 * time.Second
	turnPatience = 60 * time.Second
	// PostgreSQL has 100 connections by default, for all.
	mostConnections = 10
	postgresPort    = 5432
	tlsName         = "store"
)

// openSQL opens a database of a SQL server, after it is sure that it is this control plane's. It waits until no other
// process opens the database, and until the returned function is called, none does.
func openSQL(
	ctx context.Context, done *sync.WaitGroup, given settings.SQL, processes int64,
) (backend server.Backend, log changes, opened func(), err error) {
	password, err := os.ReadFile(given.PasswordFile)
	if err != nil {
		return nil, nil, nil, err
	}
	connector, err := connectorOf(given, strings.TrimSuffix(string(password), "\n"))
	if err != nil {
		return nil, nil, nil, err
	}
	opened, err = takeTurn(ctx, connector, given)
	if err != nil {
		return nil, nil, nil, err
	}
	backend, log, err = openTurn(ctx, done, connector, given, processes)
	if err != nil {
		opened()
	}
	return backend, log, opened, err
}

func openTurn(
	ctx context.Context, done *sync.WaitGroup, connector driver.Connector, given settings.SQL, processes int64,
) (server.Backend, changes, error) {
	var err error
	if err = own(ctx, connector, given); err != nil {
		return nil, nil, err
	}
	var dialect *generic.Generic
	if given.Driver == settings.Postgres {
		dialect, err = openPostgres(ctx, done, connector)
	} else {
		dialect, err = openMySQL(ctx, done, connector)
	}
	if err != nil {
		return nil, nil, err
	}
	// Its metrics name errors.
	dialect.ErrCode = func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	log := sqllog.New(dialect, compactInterval, 0, compactTimeout, compactMinRetain, batchSize, pollBatchSize)
	if processes > 1 {
		return logstructured.New(newShared(log, dialect)), dialect, nil
	}
	return logstructured.New(newExact(log, dialect)), dialect, nil
}

// connectorOf returns what makes connections.
func connectorOf(given settings.SQL, password string) (driver.Connector, error) {
	if given.Driver == settings.MySQL {
		config, err := mysqlConfig(given, password)
		if err != nil {
			return nil, err
		}
		return mysql.NewConnector(config)
	}
	verified, err := verification(given.TLS)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig("sslmode=disable host=localhost")
	if err != nil {
		return nil, err
	}
	// Nothing of the environment, and nothing that is resolved: only the dialer decides where a connection leads to.
	config.Host, config.Port = serverName(given.TLS), postgresPort
	config.Database, config.User, config.Password = given.Database, given.User, password
	config.TLSConfig, config.Fallbacks, config.RuntimeParams = verified, nil, map[string]string{}
	config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	config.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", given.Socket)
	}
	return stdlib.GetConnector(*config), nil
}

func mysqlConfig(given settings.SQL, password string) (*mysql.Config, error) {
	verified, err := verification(given.TLS)
	if err != nil {
		return nil, err
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "unix", given.Socket, given.Database
	config.User, config.Passwd = given.User, password
	if verified != nil {
		if err := mysql.RegisterTLSConfig(tlsName, verified); err != nil {
			return nil, err
		}
		config.TLSConfig = tlsName
	}
	// It looks the name up.
	if config, err = mysql.ParseDSN(config.FormatDSN()); err != nil {
		return nil, errors.New("the user, the password or the name of the database has characters that do not work")
	}
	return config, nil
}

func serverName(given *settings.TLS) string {
	if given == nil {
		return "localhost"
	}
	return given.ServerName
}

// verification returns how a server is verified, nil without TLS.
func verification(given *settings.TLS) (*tls.Config, error) {
	if given == nil {
		return nil, nil
	}
	made := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: given.ServerName}
	if given.CA == "" {
		return made, nil
	}
	content, err := os.ReadFile(given.CA)
	if err != nil {
		return nil, err
	}
	made.RootCAs = x509.NewCertPool()
	if !made.RootCAs.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s has no certificate", given.CA)
	}
	return made, nil
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
