package plane

import (
	"context"
	"fmt"
	"slices"

	policies "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	controlleroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
)

// takePolicies takes the controller that checks the types in admission policies from the controllers that Kubernetes
// starts, and returns whether it was among them. Kubernetes' own has the schemas of all kinds, for policies that most
// control planes do not have; the one of runPolicies asks the API server for those that a policy needs.
func takePolicies(manager *controlleroptions.KubeControllerManagerOptions) bool {
	at := slices.Index(manager.Generic.Controllers, names.ValidatingAdmissionPolicyStatusController)
	if at < 0 {
		return false
	}
	manager.Generic.Controllers = slices.Delete(slices.Clone(manager.Generic.Controllers), at, at+1)
	return true
}

// runPolicies runs the controller until ctx ends.
func runPolicies(ctx context.Context, server *rest.Config, fail context.CancelCauseFunc) {
	controller, err := newPolicies(ctx, rest.AddUserAgent(server, names.ValidatingAdmissionPolicyStatusController))
	if err != nil {
		fail(fmt.Errorf("controllers: %w", err))
		return
	}
	controller.Run(ctx, 1)
}

func newPolicies(ctx context.Context, server *rest.Config) (*validatingadmissionpolicystatus.Controller, error) {
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	controller, err := validatingadmissionpolicystatus.NewController(
		factory.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		client.AdmissionregistrationV1().ValidatingAdmissionPolicies(),
		&policies.TypeChecker{
			SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: client.Discovery()},
			RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
		},
	)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	return controller, nil
}
