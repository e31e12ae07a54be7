package plane

import (
	"github.com/emicklei/go-restful/v3"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"

	"tenantry.dev/hosted/internal/reclaim"
)

// The schemas of all kinds take about 5 MB each time they are made, and 10 MB with their references resolved. Kubernetes
// keeps them in three places for as long as the process runs, and needs them only while its servers are put together:
//
//	Config.OpenAPIV3Config.Definitions            ─► reclaimer, after PrepareRun
//	the function that names operations (version 2) ─► nameOperations, before
//	the controller of the types in policies        ─► policies.go

// nameOperations sets what the builder of documents otherwise sets itself, to a function that keeps the builder, and the
// schemas with it.
func nameOperations(config *genericapiserver.Config) {
	names := func(of func(*restful.Route) (string, []string, error)) func(common.Route) (string, []string, error) {
		return func(route common.Route) (string, []string, error) {
			if adapted, ok := route.(*restfuladapter.RouteAdapter); ok {
				return of(adapted.Route)
			}
			return route.OperationName(), nil, nil
		}
	}
	if found := config.OpenAPIConfig; found != nil && found.GetOperationIDAndTagsFromRoute == nil {
		//lint:ignore SA1019 Kubernetes sets only the older one
		found.GetOperationIDAndTagsFromRoute = names(found.GetOperationIDAndTags)
	}
	if found := config.OpenAPIV3Config; found != nil && found.GetOperationIDAndTagsFromRoute == nil {
		//lint:ignore SA1019 Kubernetes sets only the older one
		found.GetOperationIDAndTagsFromRoute = names(found.GetOperationIDAndTags)
	}
}

// reclaimer returns what runs when the servers that share the configuration have been prepared.
func reclaimer(config *genericapiserver.Config) genericapiserver.PostStartHookFunc {
	return func(hook genericapiserver.PostStartHookContext) error {
		config.OpenAPIV3Config.Definitions = nil
		go reclaim.Run(hook)
		return nil
	}
}
