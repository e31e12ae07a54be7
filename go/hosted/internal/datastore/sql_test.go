package datastore

import (
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"tenantry.dev/hosted/internal/settings"
)

const awkward = "a@b/c:d?e=%41&f #'\""

// A password must not lead the connection elsewhere.
func TestSourcesLeadToTheSocket(t *testing.T) {
	given := settings.SQL{
		Driver: settings.MySQL, Socket: "mysql.sock", Database: "objects", User: "owner@x", Owner: "a",
		TLS: &settings.TLS{ServerName: "db.example.com"},
	}
	source, _, err := connectorOf(given, awkward)
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
		_, connector, err := connectorOf(given, awkward)
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

func TestTheStatementsForPostgresAreThoseOfKine(t *testing.T) {
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/k3s-io/kine").Output()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(folder)), "pkg/drivers/pgsql/pgsql.go"))
	if err != nil {
		t.Fatal(err)
	}
	source := string(content)
	for _, each := range append(append([]string{}, postgresTables...), postgresCompact, `s + "\x1a"`, `"kine_pkey"`) {
		if !strings.Contains(source, each) {
			t.Errorf("kine has another one: %s", each)
		}
	}
	begin, end := strings.Index(source, "schema = []string{"), strings.Index(source, "schemaMigrations")
	if found := strings.Count(source[begin:end], "`") / 2; found != len(postgresTables) {
		t.Errorf("kine has %d statements", found)
	}
	_, code, _ := strings.Cut(source, "func New(")
	code, _, _ = strings.Cut(code, "\nfunc ")
	if found := strings.Count(code, "\tdialect."); found != 8 {
		t.Errorf("kine sets or calls %d fields of its dialect", found)
	}
}
