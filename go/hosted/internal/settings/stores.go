package settings

import (
	"fmt"
	"path"
	"strings"
)

// Datastore is where the objects are: a SQLite file, an etcd, or a SQL server; exactly one of them. Servers are reached
// through one Unix socket.
type Datastore struct {
	// File is a SQLite database, which is created if it does not exist.
	File string `json:"file,omitempty"`
	// Prebuilt is a file of "hosted prebuild", with which a SQLite database begins that does not exist; "" for none.
	Prebuilt string `json:"prebuilt,omitempty"`
	// MaxBytes is how large a SQLite database, or what an etcd holds of this control plane, may grow.
	MaxBytes int64 `json:"maxBytes,omitempty"`
	// Processes is how many processes write to an etcd or a SQL server for this control plane; 0 for one.
	Processes int64 `json:"processes,omitempty"`
	ETCD      *ETCD `json:"etcd,omitempty"`
	SQL       *SQL  `json:"sql,omitempty"`
}

// ETCD is an etcd that may hold the objects of other control planes, too.
type ETCD struct {
	// Socket is the Unix socket that leads to the server.
	Socket string `json:"socket"`
	// Prefix begins all keys of this control plane; its certificate opens no others.
	Prefix string `json:"prefix"`
	// ServerName is a name in the certificate of the server.
	ServerName string `json:"serverName"`
	// CA, Certificate and Key are files in PEM.
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// TLS is how a SQL server is verified.
type TLS struct {
	// ServerName is a name in its certificate.
	ServerName string `json:"serverName"`
	// CA is a file in PEM; without it, the authorities of the machine count.
	CA string `json:"ca,omitempty"`
}

// Drivers of SQL servers.
const (
	Postgres = "postgres"
	MySQL    = "mysql"
)

// SQL is a database that this control plane has to itself.
type SQL struct {
	// Driver is Postgres or MySQL.
	Driver string `json:"driver"`
	// Socket is the Unix socket that leads to the server. For PostgreSQL, its name must be PostgresSocket.
	Socket   string `json:"socket"`
	Database string `json:"database"`
	User     string `json:"user"`
	// PasswordFile is a file with nothing but the password.
	PasswordFile string `json:"passwordFile"`
	// TLS is nil for a server on the same machine.
	TLS *TLS `json:"tls,omitempty"`
	// Owner is written into the database. A database with another one in it is refused.
	Owner string `json:"owner"`
}

// PostgresSocket is what clients of PostgreSQL call a Unix socket. They are given its folder and a port.
const PostgresSocket = ".s.PGSQL.5432"

// String is for messages.
func (d Datastore) String() string {
	switch {
	case d.ETCD != nil:
		return "etcd " + d.ETCD.Prefix
	case d.SQL != nil:
		return d.SQL.Driver + " " + d.SQL.Database
	}
	return d.File
}

// Prefix begins all keys.
func (d Datastore) Prefix() string {
	if d.ETCD != nil {
		return d.ETCD.Prefix
	}
	return "/registry"
}

// Below returns the datastore with the keys below another prefix, which those of an etcd have after a restore.
func (d Datastore) Below(prefix string) Datastore {
	if d.ETCD != nil {
		moved := *d.ETCD
		moved.Prefix = prefix
		d.ETCD = &moved
	}
	return d
}

func (d Datastore) check() error {
	many := 0
	for _, is := range []bool{d.File != "", d.ETCD != nil, d.SQL != nil} {
		if is {
			many++
		}
	}
	switch {
	case many != 1:
		return fmt.Errorf("datastore must have one of datastore.file, datastore.etcd and datastore.sql")
	case d.Prebuilt != "" && d.File == "":
		return fmt.Errorf("datastore.prebuilt must only be set with datastore.file")
	case d.SQL != nil:
		return d.SQL.check()
	case d.MaxBytes < smallest:
		return fmt.Errorf("datastore.maxBytes is %d, and must be at least %d", d.MaxBytes, smallest)
	case d.ETCD != nil:
		return d.ETCD.check()
	}
	return nil
}

func (e *ETCD) check() error {
	for name, value := range map[string]string{
		"socket": e.Socket, "serverName": e.ServerName, "ca": e.CA, "certificate": e.Certificate, "key": e.Key,
	} {
		if value == "" {
			return fmt.Errorf("datastore.etcd.%s must be set", name)
		}
	}
	// One that ends in the middle of a name would have the keys of another control plane.
	if !strings.HasPrefix(e.Prefix, "/") || path.Clean(e.Prefix) != e.Prefix || e.Prefix == "/" {
		return fmt.Errorf("datastore.etcd.prefix must be a path, as in /planes/a, not %q", e.Prefix)
	}
	return nil
}

func (s *SQL) check() error {
	for name, value := range map[string]string{
		"socket": s.Socket, "database": s.Database, "user": s.User, "passwordFile": s.PasswordFile, "owner": s.Owner,
	} {
		if value == "" {
			return fmt.Errorf("datastore.sql.%s must be set", name)
		}
	}
	if s.TLS != nil && s.TLS.ServerName == "" {
		return fmt.Errorf("datastore.sql.tls.serverName must be set")
	}
	switch s.Driver {
	case MySQL:
	case Postgres:
		if path.Base(s.Socket) != PostgresSocket {
			return fmt.Errorf("datastore.sql.socket must be called %s, not %q", PostgresSocket, s.Socket)
		}
	default:
		return fmt.Errorf("datastore.sql.driver must be %s or %s, not %q", Postgres, MySQL, s.Driver)
	}
	return nil
}
