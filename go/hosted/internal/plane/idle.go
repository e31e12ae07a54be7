package plane

import (
	"time"

	"k8s.io/kubernetes/pkg/controlplane"
	identity "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

const (
	// The Service and the endpoints "kubernetes" are restored this often, if a user has changed them.
	endpointInterval = time.Minute
	endpointTTL      = 3 * endpointInterval
)

// The lease of the identity of the API server lasts an hour.
const identityInterval = 10 * time.Minute

func init() {
	// No other API server shares the datastore, and asks for this one.
	identity.IdentityLeaseRenewIntervalPeriod = identityInterval
}

// restLonger has an API server look after the Service "kubernetes" once a minute instead of six times. Each time, it
// writes to the datastore: its address has a lease.
func restLonger(config *controlplane.Config) {
	config.Extra.EndpointReconcilerConfig.Interval = endpointInterval
	config.Extra.MasterEndpointReconcileTTL = endpointTTL
}
