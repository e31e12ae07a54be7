package datastore

import (
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tenantry.dev/hosted/internal/settings"
)

const awkward = "a@b/c:d?e=%41&f #'\""

// A password must not lead the connection elsewhere.
func TestSourcesLeadToTheSocket(t *testing.T) {
	given := settings.SQL{
		Driver: settings.MySQL, Socket: "mysql.sock", Database: "objects", User: "owner@x", Owner: "a",
		TLS: &settings.TLS{ServerName: "db.example.com"},
	}
	mariadb, err := mysqlConfig(given, awkward)
	if err != nil {
		t.Fatal(err)
	}
	if mariadb.Net != "unix" || mariadb.Addr != "mysql.sock" || mariadb.DBName != "objects" || mariadb.User != "owner@x" ||
		mariadb.Passwd != awkward {
		t.Errorf("%+v", mariadb)
	}
	if mariadb.TLS == nil || mariadb.TLS.ServerName != "db.example.com" || mariadb.TLS.InsecureSkipVerify {
		t.Errorf("%+v", mariadb.TLS)
	}
}

func TestPostgresIsDialledAtTheSocketOnly(t *testing.T) {
	// What a client of PostgreSQL reads by itself.
	for name, value := range map[string]string{"PGHOST": "192.0.2.1", "PGSSLMODE": "prefer", "PGPASSWORD": "other"} {
		t.Setenv(name, value)
	}
	for _, verified := range []*settings.TLS{nil, {ServerName: "db.example.com"}} {
		socket := filepath.Join(t.TempDir(), settings.PostgresSocket)
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		given := settings.SQL{
			Driver: settings.Postgres, Socket: socket, Database: "objects", User: "owner@x", Owner: "a", TLS: verified,
		}
		connector, err := connectorOf(given, awkward)
		if err != nil {
			t.Fatal(err)
		}
		first := make(chan []byte, 8)
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				content := make([]byte, 512)
				n, _ := connection.Read(content)
				first <- content[:n]
				connection.Close()
			}
		}()
		if _, err := connector.Connect(t.Context()); err == nil {
			t.Error("a server that ends the connection is connected")
		} else if strings.Contains(err.Error(), awkward) {
			t.Error(err)
		}
		// With TLS, the first message asks for it, and nothing else is sent before the answer.
		found := string(<-first)
		if isTLS := found == "\x00\x00\x00\x08\x04\xd2\x16\x2f"; isTLS != (verified != nil) {
			t.Errorf("%q", found)
		}
		if verified == nil && (!strings.Contains(found, "owner@x") || !strings.Contains(found, "objects")) {
			t.Errorf("%q", found)
		}
	}
}

func TestAServerIsVerified(t *testing.T) {
	if found, err := verification(nil); found != nil || err != nil {
		t.Error(found, err)
	}
	found, err := verification(&settings.TLS{ServerName: "db.example.com"})
	if err != nil || found.ServerName != "db.example.com" || found.InsecureSkipVerify || found.MinVersion < tls.VersionTLS12 {
		t.Errorf("%+v, %v", found, err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := verification(&settings.TLS{ServerName: "db.example.com", CA: file}); err == nil {
		t.Error("a file without a certificate verifies")
	}
}

// kineDriver returns the source of one of kine's drivers.
func kineDriver(t *testing.T, path string) string {
	t.Helper()
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/k3s-io/kine").Output()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(folder)), "pkg/drivers", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestTheStatementsForServersAreThoseOfKine(t *testing.T) {
	postgres := append(append([]string{}, postgresTables...), postgresCompact, `s + "\x1a"`, `"kine_pkey"`)
	mariadb := append(append([]string{}, mysqlTables...), mysqlCompact, mysqlSize, `s + "#"`, "== 1062", "!= 1061")
	for path, each := range map[string]struct {
		has            []string
		tables, fields int
	}{
		"pgsql/pgsql.go": {has: postgres, tables: len(postgresTables), fields: 8},
		"mysql/mysql.go": {has: mariadb, tables: len(mysqlTables), fields: 7},
	} {
		source := kineDriver(t, path)
		for _, statement := range each.has {
			if !strings.Contains(source, statement) {
				t.Errorf("%s has another one: %s", path, statement)
			}
		}
		begin, end := strings.Index(source, "schema = []string{"), strings.Index(source, "schemaMigrations")
		if found := strings.Count(source[begin:end], "`") / 2; found != each.tables {
			t.Errorf("%s has %d statements", path, found)
		}
		_, code, _ := strings.Cut(source, "func New(")
		code, _, _ = strings.Cut(code, "\nfunc ")
		if found := strings.Count(code, "\tdialect."); found != each.fields {
			t.Errorf("%s sets or calls %d fields of its dialect", path, found)
		}
	}
}

// Each is kine's own statement, and what takes the turn.
func TestInsertsTakeTurns(t *testing.T) {
	source := kineDriver(t, "generic/generic.go")
	_, after, _ := strings.Cut(postgresInsert, "1))")
	turns := map[string]string{
		after:       " FROM turn",
		mysqlInsert: "\n\t\t\tFROM hosted_owner WHERE hosted_owner.id = 1 FOR UPDATE",
	}
	for statement, turn := range turns {
		own := strings.Replace(statement, turn, "", 1)
		if own == statement || !strings.Contains(source, own) {
			t.Errorf("kine has another one: %s", own)
		}
	}
}
