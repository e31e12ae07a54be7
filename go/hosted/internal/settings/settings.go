// Package settings reads the settings of a hosted control plane.
package settings

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Settings are what a hosted control plane is started with.
type Settings struct {
	Datastore Datastore `json:"datastore"`
	// APIServer has the flags of kube-apiserver, except those for the datastore.
	APIServer []string `json:"apiServer"`
	// Controllers has the flags of kube-controller-manager; without any, no controller runs.
	Controllers []string `json:"controllers"`
}

// Datastore is where the objects are kept.
type Datastore struct {
	// File is the SQLite database.
	File string `json:"file"`
	// Socket is the Unix socket on which the database is offered to the API server, in the protocol of etcd.
	Socket string `json:"socket"`
	// MaxBytes is the size at which the database refuses to grow.
	MaxBytes int64 `json:"maxBytes"`
}

const smallest = 16 << 20

// Read returns the settings in a file. Unknown fields are an error: a newer Tenantry may have written
// them, and to leave them out could open what they should close.
func Read(file string) (Settings, error) {
	var found Settings
	content, err := os.Open(file)
	if err != nil {
		return found, err
	}
	defer content.Close()
	decoder := json.NewDecoder(content)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&found); err != nil {
		return found, fmt.Errorf("settings %s: %w", file, err)
	}
	if err := found.check(); err != nil {
		return found, fmt.Errorf("settings %s: %w", file, err)
	}
	return found, nil
}

func (s Settings) check() error {
	switch {
	case s.Datastore.File == "" || s.Datastore.Socket == "":
		return fmt.Errorf("datastore.file and datastore.socket must be set")
	case s.Datastore.MaxBytes < smallest:
		return fmt.Errorf("datastore.maxBytes is %d, and must be at least %d", s.Datastore.MaxBytes, smallest)
	case len(s.APIServer) == 0:
		return fmt.Errorf("apiServer must have flags")
	}
	for _, flag := range s.APIServer {
		if strings.HasPrefix(flag, "--etcd-") {
			return fmt.Errorf("apiServer must not have %s: the datastore is given by itself", flag)
		}
	}
	return nil
}
