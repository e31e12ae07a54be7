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
	// Admission gives requests to another process before they are served; without it, none are.
	Admission *Admission `json:"admission,omitempty"`
	// Activity reports on a socket when clients were active last; without it, no requests are counted.
	Activity *Activity `json:"activity,omitempty"`
	// OpenAPI is a folder with the documents of the built-in kinds, which "hosted openapi" has written; without it,
	// this process makes them itself.
	OpenAPI string `json:"openAPI,omitempty"`
}

// Activity is who asks about the requests of clients, and where.
type Activity struct {
	// Socket is the Unix socket that this process listens on.
	Socket string `json:"socket"`
	// IgnoredUsers are the names of users whose requests are no activity.
	IgnoredUsers []string `json:"ignoredUsers"`
}

// Admission is a step of the admission of the API server that another process answers.
type Admission struct {
	// Socket is the Unix socket of the process.
	Socket string `json:"socket"`
	Rules  []Rule `json:"rules"`
}

// Rule selects requests to a resource, without those to its subresources.
type Rule struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
	// Operations are CREATE and UPDATE.
	Operations []string `json:"operations"`
}

// Datastore is where the objects are kept.
type Datastore struct {
	// File is the SQLite database.
	File string `json:"file"`
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
	case s.Datastore.File == "":
		return fmt.Errorf("datastore.file must be set")
	case s.Datastore.MaxBytes < smallest:
		return fmt.Errorf("datastore.maxBytes is %d, and must be at least %d", s.Datastore.MaxBytes, smallest)
	case len(s.APIServer) == 0:
		return fmt.Errorf("apiServer must have flags")
	}
	if s.Activity != nil && s.Activity.Socket == "" {
		return fmt.Errorf("activity.socket must be set")
	}
	if s.Admission != nil {
		if err := s.Admission.check(); err != nil {
			return err
		}
	}
	for _, flag := range s.APIServer {
		if strings.HasPrefix(flag, "--etcd-") {
			return fmt.Errorf("apiServer must not have %s: the datastore is given by itself", flag)
		}
	}
	return nil
}

func (a *Admission) check() error {
	if a.Socket == "" {
		return fmt.Errorf("admission.socket must be set")
	}
	if len(a.Rules) == 0 {
		return fmt.Errorf("admission.rules must have rules")
	}
	for number, rule := range a.Rules {
		// A subresource would never match, and its requests would pass.
		if rule.Resource == "" || strings.ContainsAny(rule.Resource, "/*") {
			return fmt.Errorf("admission.rules[%d].resource must be a resource, not %q", number, rule.Resource)
		}
		if len(rule.Operations) == 0 {
			return fmt.Errorf("admission.rules[%d].operations must have operations", number)
		}
		for _, operation := range rule.Operations {
			if operation != "CREATE" && operation != "UPDATE" {
				return fmt.Errorf("admission.rules[%d].operations must be CREATE or UPDATE, not %q", number, operation)
			}
		}
	}
	return nil
}
