package datastore

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"tenantry.dev/hosted/internal/settings"
)

const awkward = "a@b/c:d?e=%41&f #'\""

// A password must not lead the connection elsewhere.
func TestSourcesLeadToTheSocket(t *testing.T) {
	given := settings.SQL{
		Driver: settings.Postgres, Socket: settings.PostgresSocket, Database: "objects", User: "owner@x", Owner: "a",
	}
	source, _, err := connectorOf(given, awkward)
	if err != nil {
		t.Fatal(err)
	}
	postgres, err := pgx.ParseConfig("postgres://" + source)
	if err != nil {
		t.Fatal(err)
	}
	if postgres.Host != "/proc/self/cwd" || postgres.Port != 5432 || postgres.Database != "objects" ||
		postgres.User != "owner@x" || postgres.Password != awkward || len(postgres.Fallbacks) != 0 {
		t.Errorf("%+v", postgres.Config)
	}
	given.Driver, given.Socket = settings.MySQL, "mysql.sock"
	source, _, err = connectorOf(given, awkward)
	if err != nil {
		t.Fatal(err)
	}
	mariadb, err := mysql.ParseDSN(source)
	if err != nil {
		t.Fatal(err)
	}
	if mariadb.Net != "unix" || mariadb.Addr != "mysql.sock" || mariadb.DBName != "objects" || mariadb.User != "owner@x" ||
		mariadb.Passwd != awkward {
		t.Errorf("%+v", mariadb)
	}
}

func TestMessagesHaveNoPassword(t *testing.T) {
	given := settings.SQL{Driver: settings.Postgres, Socket: settings.PostgresSocket, Database: "\x00", User: "\x7f", Owner: "a"}
	if _, _, err := connectorOf(given, awkward); err != nil && strings.Contains(err.Error(), awkward) {
		t.Error(err)
	}
}
