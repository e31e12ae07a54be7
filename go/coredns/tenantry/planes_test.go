package tenantry

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	cluster "github.com/coredns/coredns/plugin/kubernetes"
	cached "github.com/coredns/coredns/plugin/kubernetes/object"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The pods of control planes, on the host in acme unless named otherwise.
const (
	shop   = "10.1.1.1" // in the namespace shop of the control plane one
	data   = "10.1.1.2" // in the namespace data of the control plane one
	other  = "10.1.1.3" // in the namespace shop of the control plane two
	abroad = "10.1.1.4" // in the namespace shop of a control plane with the uid of one, on the host in beta
	free   = "10.1.1.5" // in the namespace shop of a control plane without a tenant, on the host in tools
	lost   = "10.1.1.6" // of the control plane one, without the annotation with its namespace
)

// host is the cache of the plugin kubernetes, filled by the same objects as our directory.
type host struct {
	services  map[string]*cached.Service
	endpoints map[string]*cached.Endpoints
	pods      []*cached.Pod
	spaces    []string
}

func (h *host) SvcIndex(key string) []*cached.Service {
	if found := h.services[key]; found != nil {
		return []*cached.Service{found}
	}
	return nil
}

func (h *host) EpIndex(key string) []*cached.Endpoints {
	if found := h.endpoints[key]; found != nil {
		return []*cached.Endpoints{found}
	}
	return nil
}

func (h *host) SvcIndexReverse(ip string) (found []*cached.Service) {
	for _, each := range h.services {
		if slices.Contains(each.ClusterIPs, ip) {
			found = append(found, each)
		}
	}
	return found
}

func (h *host) EpIndexReverse(ip string) (found []*cached.Endpoints) {
	for _, each := range h.endpoints {
		if slices.Contains(each.IndexIP, ip) {
			found = append(found, each)
		}
	}
	return found
}

func (h *host) PodIndex(ip string) (found []*cached.Pod) {
	for _, each := range h.pods {
		if slices.Contains(each.PodIPs, ip) {
			found = append(found, each)
		}
	}
	return found
}

func (h *host) GetNamespaceByName(name string) (*cached.Namespace, error) {
	if slices.Contains(h.spaces, name) {
		return &cached.Namespace{Name: name}, nil
	}
	return nil, errors.New("no such namespace")
}

func (*host) ServiceList() []*cached.Service                   { return nil }
func (*host) EndpointsList() []*cached.Endpoints               { return nil }
func (*host) ServiceImportList() []*cached.ServiceImport       { return nil }
func (*host) SvcExtIndexReverse(string) []*cached.Service      { return nil }
func (*host) SvcImportIndex(string) []*cached.ServiceImport    { return nil }
func (*host) McEpIndex(string) []*cached.MultiClusterEndpoints { return nil }
func (*host) GetNodeByName(context.Context, string) (*core.Node, error) {
	return nil, errors.New("no node")
}
func (*host) Run()                                {}
func (*host) HasSynced() bool                     { return true }
func (*host) Stop() error                         { return nil }
func (*host) Modified(cluster.ModifiedMode) int64 { return 7 }

// upstream answers names outside of the cluster.
type upstream struct{}

func (upstream) Lookup(_ context.Context, _ request.Request, name string, _ uint16) (*dns.Msg, error) {
	rr, err := dns.NewRR(name + " 5 IN A 192.0.2.1")
	return &dns.Msg{Answer: []dns.RR{rr}}, err
}

// planes is the world of made, with control planes.
type planes struct {
	*Tenantry
	host *host
	next *world
}

// marked returns the metadata of a mirrored object; of is "owner/namespace/name inside", or "" for one that is not mirrored.
func marked(namespace, name, of string) meta.ObjectMeta {
	made := meta.ObjectMeta{Namespace: namespace, Name: name}
	if parts := strings.Split(of, "/"); len(parts) == 3 {
		made.Labels = map[string]string{labelOwner: parts[0], "vcp.tenantry.dev/namespace": "a-hash", "app": "x"}
		made.Annotations = map[string]string{
			annotationNamespace: parts[1], annotationName: parts[2], "vcp.tenantry.dev/uid": "u",
		}
	}
	return made
}

// slimmed returns what the informer keeps of an object.
func slimmed[T any](is T) T {
	kept, err := slim(is)
	if err != nil {
		panic(err)
	}
	return kept.(T)
}

// pod makes a pod with an address; named is "hostname.subdomain" or "".
func (p planes) pod(namespace, name, of, ip, named string) {
	made := &core.Pod{ObjectMeta: marked(namespace, name, of)}
	made.Status = core.PodStatus{Phase: core.PodRunning, PodIP: ip}
	made.Spec.Hostname, made.Spec.Subdomain, _ = strings.Cut(named, ".")
	p.directory.onPod(slimmed(made))
	p.host.pods = append(p.host.pods, &cached.Pod{Namespace: namespace, Name: name, PodIPs: []string{ip}})
}

// service makes a Service: its address, "None", or the target of an ExternalName. behind are "IP=pod" or "IP".
func (p planes) service(namespace, name, of, at string, behind ...string) {
	made := &core.Service{ObjectMeta: marked(namespace, name, of)}
	kept := &cached.Service{
		Namespace: namespace, Name: name, Index: cached.ServiceKey(name, namespace), ClusterIPs: []string{at},
		Ports: []core.ServicePort{{Name: "http", Protocol: core.ProtocolTCP, Port: 80}},
	}
	if _, err := netip.ParseAddr(at); err != nil && at != core.ClusterIPNone {
		kept.Type, kept.ExternalName, kept.ClusterIPs = core.ServiceTypeExternalName, at, []string{""}
	} else {
		made.Spec.ClusterIP = at
	}
	p.directory.onService(slimmed(made))
	p.host.services[kept.Index] = kept
	behindIt := &cached.Endpoints{Namespace: namespace, Index: kept.Index, Subsets: []cached.EndpointSubset{
		{Ports: []cached.EndpointPort{{Name: "http", Protocol: "TCP", Port: 80}}},
	}}
	for _, each := range behind {
		ip, pod, _ := strings.Cut(each, "=")
		behindIt.IndexIP = append(behindIt.IndexIP, ip)
		behindIt.Subsets[0].Addresses = append(behindIt.Subsets[0].Addresses, cached.EndpointAddress{IP: ip, TargetRefName: pod})
	}
	p.host.endpoints[kept.Index] = behindIt
}

func makePlanes(t testing.TB) planes {
	t.Helper()
	next := &world{}
	p := planes{made(next), &host{services: map[string]*cached.Service{}, endpoints: map[string]*cached.Endpoints{}}, next}
	served := cluster.New([]string{home, "in-addr.arpa.", "ip6.arpa."})
	served.APIConn, served.Upstream = p.host, upstream{}
	// As if the plugin let all questions through, and served few namespaces: neither is for names inside.
	served.Fall.SetZonesFromArgs(nil)
	served.Next = next
	served.Namespaces = map[string]struct{}{"default": {}, "tools": {}}
	if err := p.join(served); err != nil {
		t.Fatal(err)
	}
	p.host.spaces = []string{"acme", "beta", "default", "tools"}

	p.pod("acme", "front-1", "one/shop/front", shop, "")
	p.pod("acme", "job-1", "one/data/job", data, "")
	p.pod("acme", "front-2", "two/shop/front", other, "")
	p.pod("beta", "front-3", "one/shop/front", abroad, "")
	p.pod("tools", "front-4", "free/shop/front", free, "")
	p.pod("acme", "lost", "one//", lost, "")
	p.pod("acme", "db-0-1", "one/shop/db-0", "10.1.2.1", "db-0.db")
	p.pod("acme", "db-0-2", "one/data/db-0", "10.1.2.2", "db-0.db") // the same names in another namespace inside
	p.pod("acme", "db-0-3", "two/shop/db-0", "10.1.2.3", "db-0.db")
	p.pod("acme", "plain", "", "10.1.2.4", "db-0.db") // not mirrored

	p.service("acme", "web-1", "one/shop/web", "10.3.0.1")
	p.service("acme", "web-2", "two/shop/web", "10.3.0.2")
	p.service("beta", "web-3", "one/shop/web", "10.3.0.3")
	p.service("acme", "db-1", "one/shop/db", "None",
		"10.1.2.1=db-0-1", "10.1.2.2=db-0-2", "10.1.2.3=db-0-3", "10.1.2.4=plain", "10.1.2.5")
	p.service("acme", "api-1", "one/data/api", "10.3.0.4")
	p.service("acme", "kubernetes-1", "one/default/kubernetes", "10.3.0.5", "10.9.9.1")
	p.service("acme", "plain", "", "10.3.0.6")
	p.service("default", "kubernetes", "", "10.2.0.3")
	p.service("tools", "git", "", "10.2.0.4")
	p.service("tools", "alias", "", "web.acme.svc.cluster.local")
	p.service("acme", "to-data-1", "one/shop/to-data", "api.data.svc.cluster.local")
	p.service("acme", "to-host-1", "one/shop/to-host", "plain.acme.svc.cluster.local")
	p.service("acme", "to-nothing-1", "one/shop/to-nothing", "absent.beta.svc.cluster.local")
	p.service("acme", "to-shared-1", "one/shop/to-shared", "git.tools.svc.cluster.local")
	p.service("acme", "to-alias-1", "one/shop/to-alias", "alias.tools.svc.cluster.local")
	p.service("acme", "to-world-1", "one/shop/to-world", "www.example.com")
	return p
}

// values returns the contents of the records of an answer, sorted.
func values(m *dns.Msg) []string {
	found := []string{}
	for _, rr := range m.Answer {
		found = append(found, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	slices.Sort(found)
	return found
}
