package plane

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"

	"tenantry.dev/hosted/internal/sockets"
)

func TestOutgoingConnectionsWaitForTheirSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	missing := sockets.To(socket)
	selector := egressselector.NewEgressSelectorWithMap(map[egressselector.EgressType]utilnet.DialFunc{
		// The process begins to listen after the first try.
		egressselector.Cluster: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := missing(ctx, network, address)
			if err != nil {
				listener, failed := net.Listen("unix", socket)
				if failed != nil {
					return nil, failed
				}
				t.Cleanup(func() { listener.Close() })
			}
			return conn, err
		},
	})
	// What has read the selector before uses the dialers that wait, too.
	lookup := selector.Lookup
	awaitEgress(&apiserver.Config{KubeAPIs: &controlplane.Config{ControlPlane: controlplaneapiserver.Config{
		Generic: &genericapiserver.Config{EgressSelector: selector},
	}}})
	dial, err := lookup(egressselector.Cluster.AsNetworkContext())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dial(t.Context(), "tcp", "10.0.0.1:443")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if other, err := lookup(egressselector.Etcd.AsNetworkContext()); other != nil || err != nil {
		t.Errorf("there is a dialer for etcd: %v", err)
	}
}
