package plane

import (
	"time"

	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// The lease of the identity of the API server lasts an hour.
const identityInterval = 10 * time.Minute

func init() {
	// No other API server shares the datastore, and asks for this one.
	controlplane.IdentityLeaseRenewIntervalPeriod = identityInterval
}
