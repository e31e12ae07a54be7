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
	// UID is of the control plane, and is written into its snapshots.
	UID       string    `json:"uid,omitempty"`
	Datastore Datastore `json:"datastore"`
	// APIServer has the flags of kube-apiserver, except those for the datastore.
	APIServer []string `json:"apiServer"`
	// Controllers has the flags of kube-controller-manager; without any, no controller runs.
	Controllers []string `json:"controllers"`
	// Scheduler has the flags of kube-scheduler; without any, none runs.
	Scheduler []string `json:"scheduler,omitempty"`
	// Admission gives requests to another process before they are served; without it, none are.
	Admission *Admission `json:"admission,omitempty"`
	// Encrypted is a file with an EncryptionConfiguration, by which everything is stored again before the API server
	// serves; "" if nothing can be stored in another way.
	Encrypted string `json:"encrypted,omitempty"`
	// Guarded keeps users inside from acting as those that static admission policies exempt.
	Guarded bool `json:"guarded,omitempty"`
	// Activity reports on a socket when clients were active last; without it, no requests are counted.
	Activity *Activity `json:"activity,omitempty"`
	// Forwarded are API groups whose reads another process answers.
	Forwarded []Forwarded `json:"forwarded,omitempty"`
	// OpenAPI is a folder with the documents of the built-in kinds, which "hosted openapi" has written; without it,
	// this process makes them itself.
	OpenAPI string `json:"openAPI,omitempty"`
}

// Activity is who asks about the requests of clients, and where.
type Activity struct {
	// Socket is the Unix socket that this process listens on.
	Socket string `json:"socket"`
	// FormerAuthorities is a file with authorities whose clients are reported; "" for none.
	FormerAuthorities string `json:"formerAuthorities,omitempty"`
	// IgnoredUsers are the names of users whose requests are no activity.
	IgnoredUsers []string `json:"ignoredUsers"`
}

// Admission is a step of the admission of the API server that another process answers.
type Admission struct {
	// Socket is the Unix socket of the process.
	Socket string `json:"socket"`
	// Rules select the requests that are served only with the answer of the process.
	Rules []Rule `json:"rules"`
	// Advice selects the requests about which the process may warn; they are served whatever it answers.
	Advice []Rule `json:"advice,omitempty"`
}

// Rule selects requests to a resource, without those to its subresources.
type Rule struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
	// Operations are CREATE and UPDATE.
	Operations []string `json:"operations"`
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
	if err := s.Datastore.check(); err != nil {
		return err
	}
	if len(s.APIServer) == 0 {
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
	for number, group := range s.Forwarded {
		if err := group.check(); err != nil {
			return fmt.Errorf("forwarded[%d].%w", number, err)
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
	if len(a.Rules) == 0 && len(a.Advice) == 0 {
		return fmt.Errorf("admission must have rules or advice")
	}
	for name, rules := range map[string][]Rule{"rules": a.Rules, "advice": a.Advice} {
		for number, rule := range rules {
			if err := rule.check(); err != nil {
				return fmt.Errorf("admission.%s[%d].%w", name, number, err)
			}
		}
	}
	return nil
}

func (r Rule) check() error {
	// A subresource would never match, and its requests would pass.
	if r.Resource == "" || strings.ContainsAny(r.Resource, "/*") {
		return fmt.Errorf("resource must be a resource, not %q", r.Resource)
	}
	if len(r.Operations) == 0 {
		return fmt.Errorf("operations must have operations")
	}
	for _, operation := range r.Operations {
		if operation != "CREATE" && operation != "UPDATE" {
			return fmt.Errorf("operations must be CREATE or UPDATE, not %q", operation)
		}
	}
	return nil
}
