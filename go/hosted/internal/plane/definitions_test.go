package plane

import (
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/emicklei/go-restful/v3"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/validation/spec"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controlleroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

type marked [1 << 10]byte

// The builder of documents keeps what it was given, unless the function that it would set is there already.
func TestTheBuilderOfDocumentsKeepsNoSchemas(t *testing.T) {
	var made []weak.Pointer[marked]
	definitions := func(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		one := &marked{}
		made = append(made, weak.Make(one))
		schema := spec.Schema{VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{"x-one": one}}}
		return map[string]common.OpenAPIDefinition{"unused": {Schema: schema}}
	}
	config := &genericapiserver.Config{
		OpenAPIConfig:   genericapiserver.DefaultOpenAPIConfig(definitions, openapinamer.NewDefinitionNamer()),
		OpenAPIV3Config: genericapiserver.DefaultOpenAPIV3Config(definitions, openapinamer.NewDefinitionNamer()),
	}
	nameOperations(config)
	if _, err := builder.BuildOpenAPISpecFromRoutes(nil, config.OpenAPIConfig); err != nil {
		t.Fatal(err)
	}
	if err := reclaimer(config)(genericapiserver.PostStartHookContext{Context: t.Context()}); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	if len(made) != 2 {
		t.Errorf("schemas were made %d times", len(made))
	}
	for number, each := range made {
		if each.Value() != nil {
			t.Errorf("the schemas that were made as number %d are kept", number)
		}
	}
	runtime.KeepAlive(config)
}

func TestOperationsHaveTheirNames(t *testing.T) {
	config := &genericapiserver.Config{OpenAPIConfig: &common.Config{
		//lint:ignore SA1019 Kubernetes sets only the older one
		GetOperationIDAndTags: func(route *restful.Route) (string, []string, error) {
			return "of " + route.Path, []string{"tag"}, nil
		},
	}}
	nameOperations(config)
	route := &restfuladapter.RouteAdapter{Route: &restful.Route{Path: "/path"}}
	id, tags, err := config.OpenAPIConfig.GetOperationIDAndTagsFromRoute(route)
	if err != nil || id != "of /path" || !slices.Equal(tags, []string{"tag"}) {
		t.Error(id, tags, err)
	}
}

// If Kubernetes names the controller otherwise, it would run twice, and one of both would have all schemas.
func TestTheControllerOfPoliciesIsTaken(t *testing.T) {
	if !slices.Contains(controllers.KnownControllers(), names.ValidatingAdmissionPolicyStatusController) {
		t.Error("Kubernetes has no such controller")
	}
	manager, err := controlleroptions.NewKubeControllerManagerOptions()
	if err != nil {
		t.Fatal(err)
	}
	manager.Generic.Controllers = []string{"a", names.ValidatingAdmissionPolicyStatusController, "b"}
	if !takePolicies(manager) || !slices.Equal(manager.Generic.Controllers, []string{"a", "b"}) {
		t.Error(manager.Generic.Controllers)
	}
	if takePolicies(manager) {
		t.Error("taken twice")
	}
}
