// Command node-kube is what of Kubernetes runs on a node: kubelet or kube-proxy, by the first argument.
//
// It is a program of its own, so that a control plane without real nodes is built without it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics in /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func command(name string) *cobra.Command {
	switch name {
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		return proxy.NewProxyCommand()
	}
	return nil
}

func main() {
	if len(os.Args) > 1 {
		if chosen := command(os.Args[1]); chosen != nil {
			os.Args = os.Args[1:]
			os.Exit(cli.Run(chosen))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: node-kube kubelet|kube-proxy [flags]")
	os.Exit(2)
}
