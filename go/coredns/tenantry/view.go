package tenantry

import (
	"context"
	"errors"
	"strings"

	cluster "github.com/coredns/coredns/plugin/kubernetes"
	cached "github.com/coredns/coredns/plugin/kubernetes/object"
	"github.com/coredns/coredns/plugin/pkg/fall"
	core "k8s.io/api/core/v1"
)

// How a pod of a control plane is answered
//
// The plugin kubernetes answers names from a cache of the cluster, through an interface. For a pod of a control plane, we
// give a copy of the plugin another implementation of the interface: a view that has the objects of that control plane
// only, under their names inside. The view looks up the names in our directory and takes everything else from the cache
// of the plugin, so that nothing is kept twice:
//
//	question   A db.shop.svc.cluster.local          from a pod with the owner 7f3a…, on the host in acme
//	view       Service shop/db of acme, 7f3a…  ->   Service acme/db-5c1b0e0f4d0a92be of the host
//	answer     its address, from the plugin kubernetes
//
// Records of all types, chains of names and the options in the Corefile are then the work of the plugin. Rejected:
//
//   - To build the records here: a second implementation of Kubernetes' DNS specification, and a second cache of
//     EndpointSlices.
//   - To replace names in questions and answers by those of the host: the plugin would follow an ExternalName in the
//     host's view, and names of endpoints that the host does not have (see address) cannot be asked for.
//
// No view has a name of the host that its pod may not know, so the answers need no filter. They pass the cache by, because
// they are in memory already.

// hostAPI is the cache of the plugin kubernetes: the interface of its field APIConn, which has no exported name. A method
// that a new version adds fails the build, so that none is passed on to the host's objects unseen.
type hostAPI interface {
	ServiceList() []*cached.Service
	EndpointsList() []*cached.Endpoints
	ServiceImportList() []*cached.ServiceImport
	SvcIndex(key string) []*cached.Service
	SvcIndexReverse(ip string) []*cached.Service
	SvcExtIndexReverse(ip string) []*cached.Service
	SvcImportIndex(key string) []*cached.ServiceImport
	PodIndex(ip string) []*cached.Pod
	EpIndex(key string) []*cached.Endpoints
	EpIndexReverse(ip string) []*cached.Endpoints
	McEpIndex(key string) []*cached.MultiClusterEndpoints
	GetNodeByName(ctx context.Context, name string) (*core.Node, error)
	GetNamespaceByName(name string) (*cached.Namespace, error)
	Run()
	HasSynced() bool
	Stop() error
	Modified(mode cluster.ModifiedMode) int64
}

var errNotInside = errors.New("not in this control plane")

// view is the cluster as a pod of a control plane knows it.
type view struct {
	host      hostAPI
	directory *directory
	who       viewer
}

// inside returns the plugin kubernetes as a pod of a control plane knows it.
func (t *Tenantry) inside(who viewer) *cluster.Kubernetes {
	served := *t.cluster
	served.APIConn = t.view(who)
	// These are namespaces of the host.
	served.Namespaces = nil
	// No other server is asked for names inside.
	served.Fall = fall.F{}
	return &served
}

func (t *Tenantry) view(who viewer) *view { return &view{t.cluster.APIConn, t.directory, who} }

// names returns whether an address has a name inside.
func (v *view) names(ip string) bool {
	return len(v.SvcIndexReverse(ip)) > 0 || len(v.EpIndexReverse(ip)) > 0
}

// SvcIndex returns a Service by "name.namespace".
func (v *view) SvcIndex(key string) []*cached.Service {
	name, namespace, _ := strings.Cut(key, ".")
	of, copied, ok := v.directory.copyOf(v.who, name, namespace)
	if ok {
		var found []*cached.Service
		for _, each := range v.host.SvcIndex(cached.ServiceKey(copied.name, copied.namespace)) {
			found = append(found, renamed(each, name, namespace))
		}
		return found
	}
	if of.namespace != "" || !v.isShared(name, namespace) {
		return nil
	}
	// An ExternalName inside leads to a shared Service of the host. One that leads on is left out: its target is a name
	// of the host, and the plugin would look it up in this view.
	var found []*cached.Service
	for _, each := range v.host.SvcIndex(key) {
		if each.Type != core.ServiceTypeExternalName {
			found = append(found, each)
		}
	}
	return found
}

// EpIndex returns the endpoints of a Service by "name.namespace".
func (v *view) EpIndex(key string) []*cached.Endpoints {
	name, namespace, _ := strings.Cut(key, ".")
	of, copied, ok := v.directory.copyOf(v.who, name, namespace)
	if ok {
		var found []*cached.Endpoints
		for _, each := range v.host.EpIndex(cached.EndpointsKey(copied.name, copied.namespace)) {
			found = append(found, v.endpoints(each, of, namespace))
		}
		return found
	}
	if of.namespace != "" || !v.isShared(name, namespace) {
		return nil
	}
	return v.host.EpIndex(key)
}

// SvcIndexReverse returns the Service inside that has an address.
func (v *view) SvcIndexReverse(ip string) []*cached.Service {
	var found []*cached.Service
	for _, each := range v.host.SvcIndexReverse(ip) {
		if of, ok := v.directory.original(v.who, object{each.Namespace, each.Name}); ok {
			found = append(found, renamed(each, of.name, of.namespace))
		}
	}
	return found
}

// EpIndexReverse returns the endpoints inside that have an address.
func (v *view) EpIndexReverse(ip string) []*cached.Endpoints {
	var found []*cached.Endpoints
	for _, each := range v.host.EpIndexReverse(ip) {
		service, namespace, _ := strings.Cut(each.Index, ".")
		if of, ok := v.directory.original(v.who, object{namespace, service}); ok {
			found = append(found, v.endpoints(each, of, of.namespace))
		}
	}
	return found
}

// PodIndex returns the pods inside that have an address.
func (v *view) PodIndex(ip string) []*cached.Pod {
	var found []*cached.Pod
	for _, each := range v.host.PodIndex(ip) {
		if of := v.directory.pod(v.who, object{each.Namespace, each.Name}); of != nil {
			pod := *each
			pod.Name, pod.Namespace, pod.Labels = of.name, of.namespace, nil
			found = append(found, &pod)
		}
	}
	return found
}

// GetNamespaceByName returns a namespace inside, or a shared one of the host.
func (v *view) GetNamespaceByName(name string) (*cached.Namespace, error) {
	if v.directory.meant(v.who, name) != "" {
		return &cached.Namespace{Name: name}, nil
	}
	if v.isShared("", name) {
		return v.host.GetNamespaceByName(name)
	}
	return nil, errNotInside
}

// isShared returns whether a name is one of the host's that the pod may know.
func (v *view) isShared(service, namespace string) bool {
	return v.directory.sees(v.who, subject{namespace, service})
}

// renamed returns a Service of the host under its name inside.
func renamed(service *cached.Service, name, namespace string) *cached.Service {
	copied := *service
	copied.Name, copied.Namespace, copied.Index = name, namespace, cached.ServiceKey(name, namespace)
	return &copied
}

// endpoints returns endpoints of the host under the name of their Service inside, and under what the pod calls the
// namespace of that Service.
func (v *view) endpoints(host *cached.Endpoints, of inner, namespace string) *cached.Endpoints {
	copied := *host
	copied.Index, copied.Namespace = cached.EndpointsKey(of.name, namespace), namespace
	copied.Subsets = make([]cached.EndpointSubset, len(host.Subsets))
	for i, subset := range host.Subsets {
		addresses := make([]cached.EndpointAddress, len(subset.Addresses))
		for j, each := range subset.Addresses {
			addresses[j] = v.address(each, of)
		}
		copied.Subsets[i] = cached.EndpointSubset{Addresses: addresses, Ports: subset.Ports}
	}
	return &copied
}

// address returns an address of the host with the names that it has inside.
//
// Kubernetes puts the hostname of a pod into EndpointSlices if the subdomain of the pod is the name of the Service. On the
// host the Service has another name, so that the hostname is missing there; EndpointSlices that the mirror writes have it.
func (v *view) address(host cached.EndpointAddress, of inner) cached.EndpointAddress {
	if host.TargetRefName == "" {
		return host
	}
	pod := v.directory.pod(v.who, object{v.who.plane.host, host.TargetRefName})
	host.TargetRefName = ""
	if pod == nil {
		return host
	}
	if host.Hostname == "" && pod.namespace == of.namespace && pod.subdomain == of.name {
		host.Hostname = pod.hostname
	}
	// As the plugin kubernetes: a longer name is no label.
	if len(pod.name) < 64 {
		host.TargetRefName = pod.name
	}
	return host
}

// What only transfers, the plugin k8s_external and zones of several clusters read is not in a view.

func (*view) ServiceList() []*cached.Service                            { return nil }
func (*view) EndpointsList() []*cached.Endpoints                        { return nil }
func (*view) ServiceImportList() []*cached.ServiceImport                { return nil }
func (*view) SvcExtIndexReverse(string) []*cached.Service               { return nil }
func (*view) SvcImportIndex(string) []*cached.ServiceImport             { return nil }
func (*view) McEpIndex(string) []*cached.MultiClusterEndpoints          { return nil }
func (*view) GetNodeByName(context.Context, string) (*core.Node, error) { return nil, errNotInside }

// Run is never called: the plugin kubernetes of the server runs and stops its cache.
func (*view) Run() {}

// Stop is never called.
func (*view) Stop() error { return nil }

// HasSynced returns whether the cache of the plugin kubernetes is filled.
func (v *view) HasSynced() bool { return v.host.HasSynced() }

// Modified returns when the cache of the plugin kubernetes has changed: the serial number of its zones.
func (v *view) Modified(mode cluster.ModifiedMode) int64 { return v.host.Modified(mode) }
