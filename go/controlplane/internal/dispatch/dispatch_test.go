package dispatch_test

import (
	"slices"
	"strings"
	"testing"

	"tenantry.dev/controlplane/internal/dispatch"
)

var names = []string{"etcd", "kube-apiserver", "kubectl"}

func TestChoose(t *testing.T) {
	tests := []struct {
		args []string
		name string
		rest []string
	}{
		{[]string{"/usr/bin/kubectl", "get", "pods"}, "kubectl", []string{"/usr/bin/kubectl", "get", "pods"}},
		{[]string{"/bin/controlplane", "etcd", "--name=a"}, "etcd", []string{"etcd", "--name=a"}},
		{[]string{"controlplane", "kube-apiserver"}, "kube-apiserver", []string{"kube-apiserver"}},
		// The name it is called by wins: "kubectl etcd" is an unknown command of kubectl, not etcd.
		{[]string{"kubectl", "etcd"}, "kubectl", []string{"kubectl", "etcd"}},
	}
	for _, test := range tests {
		name, rest, err := dispatch.Choose(names, test.args)
		if err != nil || name != test.name || !slices.Equal(rest, test.rest) {
			t.Errorf("Choose(%q) = %q, %q, %v; want %q, %q", test.args, name, rest, err, test.name, test.rest)
		}
	}
}

func TestChooseNamesTheComponentsWhereNoneIsAskedFor(t *testing.T) {
	for _, args := range [][]string{nil, {"controlplane"}, {"controlplane", "kubelet"}, {"controlplane", "--help"}} {
		name, _, err := dispatch.Choose(names, args)
		if err == nil {
			t.Fatalf("Choose(%q) = %q; want an error", args, name)
		}
		for _, component := range names {
			if !strings.Contains(err.Error(), component) {
				t.Errorf("Choose(%q): %v; want it to name %q", args, err, component)
			}
		}
	}
}
