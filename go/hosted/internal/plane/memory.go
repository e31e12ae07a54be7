package plane

import (
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// The lease of the identity of the API server lasts an hour.
const identityInterval = 10 * time.Minute

func init() {
	// No other API server shares the datastore, and asks for this one.
	controlplane.IdentityLeaseRenewIntervalPeriod = identityInterval
}

// forget drops the schemas of the built-in kinds from which the servers have made what they serve.
func forget(config *apiserver.Config) {
	for _, server := range []*genericapiserver.Config{
		config.KubeAPIs.ControlPlane.Generic, &config.ApiExtensions.GenericConfig.Config, &config.Aggregator.GenericConfig.Config,
	} {
		if server.OpenAPIV3Config != nil {
			server.OpenAPIV3Config.Definitions = nil
		}
	}
}
