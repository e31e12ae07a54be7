// Command controlplane is one binary that holds every component of a Kubernetes control plane.
//
// The component is chosen by the name it is called by (a link named "kubectl") or by the first
// argument ("controlplane kubectl ...").
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics in /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"tenantry.dev/controlplane/internal/apiserver"
	"tenantry.dev/controlplane/internal/dispatch"
)

// components maps the name of each cobra component to its command. etcd is not among them: it
// parses its own arguments.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func names() []string {
	known := []string{"etcd"}
	for name := range components {
		known = append(known, name)
	}
	slices.Sort(known)
	return known
}

func main() {
	name, args, err := dispatch.Choose(names(), os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(2)
	}
	os.Args = args
	if name == "etcd" {
		etcdmain.Main(args)
		return
	}
	os.Exit(cli.Run(components[name]()))
}
