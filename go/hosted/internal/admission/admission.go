// Package admission gives requests to another process before the API server stores their objects. The process
// answers on a Unix socket: with the object to store, or with a refusal. While it does not answer, matching requests
// wait for a few seconds and are then refused, and all others are served.
//
//	request ─► plugin (rules)  ─► POST over the socket ─► the object to store, or a Status
//	        ─► plugin (advice) ─► POST over the socket ─► warnings for the client; no answer is none
//
// The step runs before mutating webhooks. A webhook that changes the object makes the API server repeat the step with
// the changed object, but a webhook that is called again can change it once more. An update that meets another one is
// tried again. The process therefore gets an object more than once, and the stored object may differ from its answer.
package admission

import (
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/warning"

	"tenantry.dev/hosted/internal/settings"
	"tenantry.dev/hosted/internal/sockets"
)

// Of the names of controllers, nodes and service accounts, which show no warnings to people.
const systemPrefix = "system:"

// PluginName is the name of the plugin in metrics.
const PluginName = "HostAdmission"

type plugin struct {
	operations map[admission.Operation]bool
	rules      map[rule]bool
	advice     map[rule]bool
	caller     *caller
	// Has slots of its own: requests that must have an answer do not wait for advice.
	adviser *caller
}

type rule struct {
	resource  schema.GroupResource
	operation admission.Operation
}

var _ admission.MutationInterface = &plugin{}

func newPlugin(given settings.Admission) *plugin {
	dial := sockets.To(given.Socket)
	found := &plugin{
		operations: map[admission.Operation]bool{},
		rules:      map[rule]bool{},
		advice:     map[rule]bool{},
		caller:     newCaller(sockets.Await(dial), mostCalls, callTimeout),
		adviser:    newCaller(dial, mostAdvice, adviceTimeout),
	}
	found.add(found.rules, given.Rules)
	found.add(found.advice, given.Advice)
	return found
}

func (p *plugin) add(into map[rule]bool, given []settings.Rule) {
	for _, each := range given {
		for _, name := range each.Operations {
			operation := admission.Operation(name)
			p.operations[operation] = true
			into[rule{schema.GroupResource{Group: each.Group, Resource: each.Resource}, operation}] = true
		}
	}
}

// Install puts the step into the admission of an API server, in front of everything that its users configure.
func Install(into *options.AdmissionOptions, given settings.Admission) error {
	place := slices.Index(into.RecommendedPluginOrder, mutating.PluginName)
	if place < 0 {
		return fmt.Errorf("the admission plugin %s, which %s must precede, is unknown", mutating.PluginName, PluginName)
	}
	step := newPlugin(given)
	into.Plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return step, nil })
	// The order is a variable of another package: it must stay as it is.
	into.RecommendedPluginOrder = slices.Insert(slices.Clone(into.RecommendedPluginOrder), place, PluginName)
	return nil
}

type ownRequest struct{}

// ExemptOwn marks requests of the API server to itself, which pass the step: it must be able to start, and to keep its
// own Service, while the process does not answer. A request is its own if it has the token that this process made.
// Its user name would prove nothing, because administrators can impersonate it and read its uid in their webhooks.
func ExemptOwn(config *genericapiserver.Config) {
	chain := config.BuildHandlerChainFunc
	own := []byte("Bearer " + config.LoopbackClientConfig.BearerToken)
	config.BuildHandlerChainFunc = func(handler http.Handler, config *genericapiserver.Config) http.Handler {
		whole := chain(handler, config)
		return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
			if isOwn(request.Header, own) {
				request = request.WithContext(context.WithValue(request.Context(), ownRequest{}, true))
			}
			whole.ServeHTTP(writer, request)
		})
	}
}

func isOwn(headers http.Header, own []byte) bool {
	return subtle.ConstantTimeCompare([]byte(headers.Get("Authorization")), own) == 1
}

// Handles returns whether a rule has the operation.
func (p *plugin) Handles(operation admission.Operation) bool {
	return p.operations[operation]
}

// Admit asks the process if a rule matches, and changes the object into its answer, or warns the client.
func (p *plugin) Admit(ctx context.Context, given admission.Attributes, o admission.ObjectInterfaces) error {
	matched := rule{given.GetResource().GroupResource(), given.GetOperation()}
	isRuled, isAdvised := p.rules[matched], p.advice[matched]
	if given.GetSubresource() != "" || (!isRuled && !isAdvised) {
		return nil
	}
	if own, _ := ctx.Value(ownRequest{}).(bool); own {
		return nil
	}
	if user := given.GetUserInfo(); !isRuled && user != nil && strings.HasPrefix(user.GetName(), systemPrefix) {
		return nil
	}
	asked, err := newQuestion(given, o)
	if err != nil {
		return err
	}
	if !isRuled {
		for _, text := range p.adviser.advice(ctx, asked) {
			warning.AddWarning(ctx, "", text)
		}
		return nil
	}
	answered, err := p.caller.call(ctx, asked)
	if err != nil {
		return err
	}
	return replace(given, answered, o)
}

func newQuestion(given admission.Attributes, o admission.ObjectInterfaces) (question, error) {
	object, err := meta.Accessor(given.GetObject())
	if err != nil {
		return question{}, err
	}
	if object.GetName() == "" && object.GetGenerateName() != "" {
		// What the registry does later; the process must know the name.
		object.SetName(names.SimpleNameGenerator.GenerateName(object.GetGenerateName()))
	}
	versioned, err := admission.NewVersionedAttributes(given, given.GetKind(), o)
	if err != nil {
		return question{}, err
	}
	asked := question{
		Operation: string(given.GetOperation()),
		Group:     given.GetResource().Group,
		Version:   given.GetResource().Version,
		Resource:  given.GetResource().Resource,
		Namespace: given.GetNamespace(),
		Name:      object.GetName(),
		DryRun:    given.IsDryRun(),
		Object:    versioned.VersionedObject,
		OldObject: versioned.VersionedOldObject,
	}
	if user := given.GetUserInfo(); user != nil {
		asked.User = user.GetName()
	}
	return asked, nil
}
