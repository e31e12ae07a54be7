// Package dispatch decides which component a multi-call binary is to be. It stands apart so that its
// test need not link all of Kubernetes.
package dispatch

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Choose returns the one of names that args ask for, and the arguments that it should see.
//
// The name that the program is called by (a link named "kubectl") comes before the first argument
// ("controlplane kubectl ...").
func Choose(names, args []string) (string, []string, error) {
	if len(args) > 0 {
		if called := filepath.Base(args[0]); slices.Contains(names, called) {
			return called, args, nil
		}
	}
	if len(args) > 1 && slices.Contains(names, args[1]) {
		return args[1], args[1:], nil
	}
	return "", nil, fmt.Errorf("name a component as the first argument: %s", strings.Join(names, ", "))
}
