// Package forwarded lets another process answer the reads of an API group. The group exists while there is an APIService
// of its version without a Service:
//
//	request ─► authentication, authorization, audit ─► aggregator ─► Handler ─ Unix socket ─► the process
//
// An APIService with a Service is the users' own: the aggregator gives it the requests. The process gets the path and
// the query, and never who asks: this server has authorized the request.
package forwarded

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"

	"tenantry.dev/hosted/internal/settings"
	"tenantry.dev/hosted/internal/sockets"
)

const (
	largestAnswer = 8 << 20
	// How many requests the process gets at one time; more wait.
	mostCalls    = 8
	callTimeout  = 10 * time.Second
	retrySeconds = 5
)

// Install gives the requests of groups to their processes.
func Install(chain *aggregatorapiserver.APIAggregator, groups []settings.Forwarded) error {
	if len(groups) == 0 {
		return nil
	}
	builtIn, ok := chain.GenericAPIServer.NextDelegate().(*genericapiserver.GenericAPIServer)
	if !ok {
		return fmt.Errorf("the server behind the aggregator is a %T", chain.GenericAPIServer.NextDelegate())
	}
	discovery := chain.GenericAPIServer.AggregatedDiscoveryGroupManager.WithSource(aggregated.BuiltinSource)
	informer := chain.APIRegistrationInformers.Apiregistration().V1().APIServices().Informer()
	for _, group := range groups {
		handler := newHandler(group)
		builtIn.Handler.NonGoRestfulMux.Handle(handler.root, handler)
		builtIn.Handler.NonGoRestfulMux.UnlistedHandlePrefix(handler.root+"/", handler)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(found any) { handler.follow(found, true, discovery) },
			UpdateFunc: func(_, found any) { handler.follow(found, true, discovery) },
			DeleteFunc: func(found any) { handler.follow(found, false, discovery) },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Handler answers the requests of one version of one group.
type Handler struct {
	group     settings.Forwarded
	root      string
	transport http.RoundTripper
	slots     chan struct{}
	served    atomic.Bool
}

func newHandler(group settings.Forwarded) *Handler {
	return &Handler{
		group: group,
		root:  "/apis/" + group.Group + "/" + group.Version,
		transport: &http.Transport{
			DialContext: sockets.Await(sockets.To(group.Socket)),
			// A later process replaces the socket, and an open connection would lead to the former one.
			DisableKeepAlives: true,
		},
		slots: make(chan struct{}, mostCalls),
	}
}

// follow serves the group while an APIService without a Service has it.
func (h *Handler) follow(found any, exists bool, discovery aggregated.ResourceManager) {
	if tombstone, ok := found.(cache.DeletedFinalStateUnknown); ok {
		found = tombstone.Obj
	}
	service, ok := found.(*apiregistration.APIService)
	if !ok || service.Name != h.group.Version+"."+h.group.Group {
		return
	}
	served := exists && service.Spec.Service == nil
	if h.served.Swap(served) == served {
		return
	}
	if served {
		discovery.AddGroupVersion(h.group.Group, h.described())
		version := metav1.GroupVersion{Group: h.group.Group, Version: h.group.Version}
		discovery.SetGroupVersionPriority(
			version, int(service.Spec.GroupPriorityMinimum), int(service.Spec.VersionPriority))
	} else {
		discovery.RemoveGroupVersion(metav1.GroupVersion{Group: h.group.Group, Version: h.group.Version})
	}
}

var verbs = []string{"get", "list"}

func (h *Handler) described() apidiscoveryv2.APIVersionDiscovery {
	found := apidiscoveryv2.APIVersionDiscovery{
		Version: h.group.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
	}
	for _, each := range h.group.Resources {
		scope := apidiscoveryv2.ScopeCluster
		if each.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		kind := metav1.GroupVersionKind{Group: h.group.Group, Version: h.group.Version, Kind: each.Kind}
		found.Resources = append(found.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: each.Name, ResponseKind: &kind, Scope: scope, Verbs: verbs,
		})
	}
	return found
}

func (h *Handler) listed() metav1.APIResourceList {
	found := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: h.group.Group + "/" + h.group.Version,
		APIResources: []metav1.APIResource{},
	}
	for _, each := range h.group.Resources {
		found.APIResources = append(found.APIResources, metav1.APIResource{
			Name: each.Name, Namespaced: each.Namespaced, Kind: each.Kind, Verbs: verbs,
		})
	}
	return found
}

// ServeHTTP answers a request that the API server has authorized.
func (h *Handler) ServeHTTP(w http.ResponseWriter, asked *http.Request) {
	switch {
	case !h.served.Load():
		fail(w, apierrors.NewGenericServerResponse(http.StatusNotFound, "", h.resource(), "", "", 0, false))
	case asked.Method != http.MethodGet || asked.URL.Query().Get("watch") != "":
		fail(w, apierrors.NewMethodNotSupported(h.resource(), strings.ToLower(asked.Method)))
	case strings.TrimSuffix(asked.URL.Path, "/") == h.root:
		writeJSON(w, http.StatusOK, h.listed())
	default:
		status, content, err := h.call(asked)
		if err != nil {
			// The error names the socket, which is no matter of the client.
			klog.ErrorS(err, "The process of an API group has no answer", "group", h.group.Group)
			fail(w, h.unavailable())
			return
		}
		writeRaw(w, status, content)
	}
}

func (h *Handler) call(asked *http.Request) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(asked.Context(), callTimeout)
	defer cancel()
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	// The host is not used: the socket is the address. Headers of the client go no further: they have its credentials.
	target := *asked.URL
	target.Scheme, target.Host, target.User, target.Fragment = "http", "forwarded", nil, ""
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return 0, nil, err
	}
	// The transport and not a client: redirects are not followed.
	response, err := h.transport.RoundTrip(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, largestAnswer+1))
	if err == nil && (len(content) > largestAnswer || !json.Valid(content) || response.StatusCode < http.StatusOK) {
		err = fmt.Errorf("unexpected response: HTTP status %d, %d bytes", response.StatusCode, len(content))
	}
	return response.StatusCode, content, err
}

func (h *Handler) resource() schema.GroupResource { return schema.GroupResource{Group: h.group.Group} }

func (h *Handler) unavailable() *apierrors.StatusError {
	found := apierrors.NewServiceUnavailable(fmt.Sprintf(
		"%s is not available at the moment, because the cluster that hosts this control plane does not answer: "+
			"try again, and ask its administrators if this lasts", h.group.Group))
	found.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retrySeconds}
	return found
}

func fail(w http.ResponseWriter, err *apierrors.StatusError) {
	err.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	writeJSON(w, int(err.ErrStatus.Code), err.ErrStatus)
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	content, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	writeRaw(w, status, content)
}

func writeRaw(w http.ResponseWriter, status int, content []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may have left.
	_, _ = w.Write(content)
}
