package settings

import (
	"fmt"
	"strings"
)

// Forwarded is one version of an API group whose reads another process answers.
type Forwarded struct {
	// Socket is the Unix socket of the process.
	Socket    string              `json:"socket"`
	Group     string              `json:"group"`
	Version   string              `json:"version"`
	Resources []ForwardedResource `json:"resources"`
}

// ForwardedResource is a kind of a group.
type ForwardedResource struct {
	// Name is the plural.
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
}

func (f Forwarded) check() error {
	if f.Socket == "" {
		return fmt.Errorf("socket must be set")
	}
	// A group of Kubernetes itself, or a path of another one, would be taken from its server.
	if !strings.Contains(f.Group, ".") || strings.Contains(f.Group, "/") {
		return fmt.Errorf("group must be an API group, not %q", f.Group)
	}
	if f.Version == "" || strings.Contains(f.Version, "/") {
		return fmt.Errorf("version must be a version, not %q", f.Version)
	}
	if len(f.Resources) == 0 {
		return fmt.Errorf("resources must have resources")
	}
	return nil
}
