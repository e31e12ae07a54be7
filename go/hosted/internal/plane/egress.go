package plane

import (
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"

	"tenantry.dev/hosted/internal/sockets"
)

// awaitEgress lets outgoing connections wait until the process that serves their socket listens: clients of the API
// server may come before. The configuration has given a pointer to the selector to all that dial, and a dialer to the
// transport of proxies.
func awaitEgress(config *apiserver.Config) {
	shared := config.KubeAPIs.ControlPlane
	if shared.Generic.EgressSelector == nil {
		return
	}
	*shared.Generic.EgressSelector = *awaiting(shared.Generic.EgressSelector)
	if proxies := shared.ProxyTransport; proxies != nil && proxies.DialContext != nil {
		proxies.DialContext = sockets.Await(proxies.DialContext)
	}
}

// awaiting returns a selector whose dialers wait. A type without a dialer keeps none.
func awaiting(given *egressselector.EgressSelector) *egressselector.EgressSelector {
	dialers := map[egressselector.EgressType]utilnet.DialFunc{}
	for _, each := range []egressselector.EgressType{
		egressselector.ControlPlane, egressselector.Etcd, egressselector.Cluster,
	} {
		if dial, err := given.Lookup(each.AsNetworkContext()); err == nil && dial != nil {
			dialers[each] = sockets.Await(dial)
		}
	}
	return egressselector.NewEgressSelectorWithMap(dialers)
}
