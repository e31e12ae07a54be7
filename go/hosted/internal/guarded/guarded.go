// Package guarded keeps users inside from acting as those that static admission policies exempt: members of
// system:masters, and nodes. An administrator may impersonate anyone, and approves requests for certificates.
//
//	Impersonate-User, Impersonate-Group ─► refused before anything else
//	CertificateSigningRequest           ─► refused for a subject in system:nodes, unless its signer is one of kubelets
//
// Kubernetes itself refuses a certificate for system:masters, and the policies decide who approves those of kubelets.
package guarded

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	certificates "k8s.io/kubernetes/pkg/apis/certificates"
)

// PluginName is the name of the plugin in metrics.
const PluginName = "GuardedSubjects"

const nodePrefix = "system:node:"

// Restrict puts the check of subjects into the admission of an API server.
func Restrict(into *options.AdmissionOptions) error {
	place := slices.Index(into.RecommendedPluginOrder, mutating.PluginName)
	if place < 0 {
		return fmt.Errorf("the admission plugin %s, which %s must precede, is unknown", mutating.PluginName, PluginName)
	}
	step := &plugin{Handler: admission.NewHandler(admission.Create)}
	into.Plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return step, nil })
	// The order is a variable of another package: it must stay as it is.
	into.RecommendedPluginOrder = slices.Insert(slices.Clone(into.RecommendedPluginOrder), place, PluginName)
	return nil
}

// Install refuses impersonation of those that the policies exempt.
func Install(config *genericapiserver.Config) {
	chain := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(handler http.Handler, config *genericapiserver.Config) http.Handler {
		whole := chain(handler, config)
		return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
			if name := exempted(request.Header); name != "" {
				refuse(writer, name)
				return
			}
			whole.ServeHTTP(writer, request)
		})
	}
}

// exempted returns the user or group that headers impersonate and that the policies exempt; "" for none.
func exempted(headers http.Header) string {
	for _, name := range headers.Values("Impersonate-User") {
		if strings.HasPrefix(name, nodePrefix) {
			return name
		}
	}
	for _, name := range headers.Values("Impersonate-Group") {
		if name == user.SystemPrivilegedGroup || name == user.NodesGroup {
			return name
		}
	}
	return ""
}

func refuse(writer http.ResponseWriter, name string) {
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(http.StatusForbidden)
	// The client that does not read the answer gets none.
	_ = json.NewEncoder(writer).Encode(&metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Reason:   metav1.StatusReasonForbidden,
		Code:     http.StatusForbidden,
		Message:  fmt.Sprintf("%q must not be impersonated: the guards of this cluster do not apply to it", name),
	})
}

type plugin struct {
	*admission.Handler
}

var _ admission.ValidationInterface = &plugin{}

// Validate refuses a request for a certificate of a node that another signer would sign than those of kubelets.
func (p *plugin) Validate(_ context.Context, given admission.Attributes, _ admission.ObjectInterfaces) error {
	if given.GetResource().GroupResource() != certificates.Resource("certificatesigningrequests") ||
		given.GetSubresource() != "" {
		return nil
	}
	asked, ok := given.GetObject().(*certificates.CertificateSigningRequest)
	if !ok {
		return admission.NewForbidden(given, fmt.Errorf("unexpected object %T", given.GetObject()))
	}
	if asked.Spec.SignerName != "kubernetes.io/kube-apiserver-client" {
		return nil
	}
	parsed, err := certificates.ParseCSR(asked.Spec.Request)
	if err != nil {
		return admission.NewForbidden(given, fmt.Errorf("spec.request is no request for a certificate: %w", err))
	}
	if slices.Contains(parsed.Subject.Organization, user.NodesGroup) {
		return admission.NewForbidden(given, fmt.Errorf(
			"the subject must not be in %s: the guards of this cluster do not apply to nodes", user.NodesGroup))
	}
	return nil
}
