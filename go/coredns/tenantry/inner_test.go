package tenantry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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
	of_ := &cached.Endpoints{Namespace: namespace, Index: kept.Index, Subsets: []cached.EndpointSubset{
		{Ports: []cached.EndpointPort{{Name: "http", Protocol: "TCP", Port: 80}}},
	}}
	for _, each := range behind {
		ip, pod, _ := strings.Cut(each, "=")
		of_.IndexIP = append(of_.IndexIP, ip)
		of_.Subsets[0].Addresses = append(of_.Subsets[0].Addresses, cached.EndpointAddress{IP: ip, TargetRefName: pod})
	}
	p.host.endpoints[kept.Index] = of_
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

// H01: names inside resolve for the pods of that control plane, in all forms.
func TestNamesInside(t *testing.T) {
	p := makePlanes(t)
	for _, each := range []struct {
		from, name string
		qtype      uint16
		want       string
	}{
		{shop, "web.shop.svc.cluster.local.", dns.TypeA, "10.3.0.1"},
		{shop, "WEB.Shop.sVc.cluster.LOCAL.", dns.TypeA, "10.3.0.1"},
		{data, "web.shop.svc.cluster.local.", dns.TypeA, "10.3.0.1"},
		{other, "web.shop.svc.cluster.local.", dns.TypeA, "10.3.0.2"},
		{abroad, "web.shop.svc.cluster.local.", dns.TypeA, "10.3.0.3"},
		{lost, "web.shop.svc.cluster.local.", dns.TypeA, "10.3.0.1"},
		{shop, "web.shop.svc.cluster.local.", dns.TypeAAAA, ""},
		{shop, "web.shop.svc.cluster.local.", dns.TypeTXT, ""},
		{shop, "shop.svc.cluster.local.", dns.TypeA, ""},
		{shop, "_http._tcp.web.shop.svc.cluster.local.", dns.TypeSRV, "0 100 80 web.shop.svc.cluster.local."},
		{other, "kube-system.svc.cluster.local.", dns.TypeA, ""}, // exists, although no object in it is mirrored
		{shop, "kubernetes.default.svc.cluster.local.", dns.TypeA, "10.3.0.5"},
		{shop, "db.shop.svc.cluster.local.", dns.TypeA, "10.1.2.1 10.1.2.2 10.1.2.3 10.1.2.4 10.1.2.5"},
		{shop, "db-0.db.shop.svc.cluster.local.", dns.TypeA, "10.1.2.1"},
		{shop, "10-1-2-5.db.shop.svc.cluster.local.", dns.TypeA, "10.1.2.5"},
		// What kubelet makes of "web", "db-0.db" and "_http._tcp.web" in a pod that is on the host in acme.
		{shop, "web.acme.svc.cluster.local.", dns.TypeA, "10.3.0.1"},
		{other, "web.acme.svc.cluster.local.", dns.TypeA, "10.3.0.2"},
		{shop, "db-0.db.acme.svc.cluster.local.", dns.TypeA, "10.1.2.1"},
		{data, "api.acme.svc.cluster.local.", dns.TypeA, "10.3.0.4"},
		{shop, "_http._tcp.web.acme.svc.cluster.local.", dns.TypeSRV, "0 100 80 web.acme.svc.cluster.local."},
		{shop, reversed(t, "10.3.0.1"), dns.TypePTR, "web.shop.svc.cluster.local."},
		{data, reversed(t, "10.3.0.1"), dns.TypePTR, "web.shop.svc.cluster.local."},
		{shop, reversed(t, "10.1.2.1"), dns.TypePTR, "db-0.db.shop.svc.cluster.local."},
		{shop, reversed(t, "10.1.2.5"), dns.TypePTR, "10-1-2-5.db.shop.svc.cluster.local."},
	} {
		m := ask(t, p.Tenantry, each.from, each.name, each.qtype)
		if m.Rcode != dns.RcodeSuccess || strings.Join(values(m), " ") != each.want {
			t.Errorf("%s asked %s %s and was answered %v", each.from, each.name, dns.TypeToString[each.qtype], m)
		}
		for _, rr := range m.Answer {
			if !strings.EqualFold(rr.Header().Name, each.name) {
				t.Errorf("%s was answered about %s", each.name, rr.Header().Name)
			}
		}
	}
	if len(p.next.asked) > 0 {
		t.Errorf("other plugins were asked %v", p.next.asked)
	}
}

// H06: a pod of a control plane sees no other names: not of the host, nor of other control planes, nor of other tenants.
func TestNamesOutsideOfAControlPlane(t *testing.T) {
	p := makePlanes(t)
	var nothing string
	for _, name := range []string{
		"web.none.svc.cluster.local.", // what does not exist; the others get the same answer
		"web.beta.svc.cluster.local.", "beta.svc.cluster.local.", "web-3.beta.svc.cluster.local.",
		"web.acme-team.svc.cluster.local.", "10-1-0-1.beta.pod.cluster.local.", "any.any.svc.cluster.local.",
		`web.a\.shop.svc.cluster.local.`, `web.none\.shop.svc.cluster.local.`, "web.*.svc.cluster.local.",
		reversed(t, acme), reversed(t, shop), reversed(t, "10.3.0.2"), reversed(t, "10.3.0.3"), reversed(t, "10.3.0.6"),
		reversed(t, "10.2.0.3"), reversed(t, "10.2.0.2"), reversed(t, "10.2.0.99"), reversed(t, node),
	} {
		qtype := dns.TypeA
		if strings.HasSuffix(name, ".arpa.") {
			qtype = dns.TypePTR
		}
		m := ask(t, p.Tenantry, shop, name, qtype)
		if m.Rcode != dns.RcodeNameError || len(m.Answer) > 0 {
			t.Errorf("%s answered %v", name, m)
		}
		if m.Id, m.Question = 0, nil; !strings.HasSuffix(name, ".arpa.") {
			if nothing == "" {
				nothing = m.String()
			}
			if m.String() != nothing {
				t.Errorf("%s differs from a namespace that does not exist:\n%v", name, m)
			}
		}
	}
	for from, names := range map[string][]string{
		shop: {
			"web-1.acme.svc.cluster.local.", "plain.acme.svc.cluster.local.", "web-1.shop.svc.cluster.local.",
			"api.acme.svc.cluster.local.", "db-0.db.data.svc.cluster.local.", "other.default.svc.cluster.local.",
			"db-0.web.shop.svc.cluster.local.", "db-0-1.db.shop.svc.cluster.local.", "plain.db.shop.svc.cluster.local.",
			`web\.shop.shop.svc.cluster.local.`, "web.shop.svc.in-addr.arpa.", "1.2.a.b.web.shop.svc.cluster.local.",
		},
		other:  {"api.data.svc.cluster.local.", "kubernetes.default.svc.cluster.local.", "db.shop.svc.cluster.local."},
		abroad: {"api.data.svc.cluster.local.", "web.acme.svc.cluster.local.", "db.beta.svc.cluster.local."},
		free:   {"web.shop.svc.cluster.local.", "web.acme.svc.cluster.local.", "kubernetes.default.svc.cluster.local."},
		lost:   {"web.acme.svc.cluster.local."},
	} {
		for _, name := range names {
			if m := ask(t, p.Tenantry, from, name, dns.TypeA); m.Rcode != dns.RcodeNameError || len(m.Answer) > 0 {
				t.Errorf("%s asked %s and was answered %v", from, name, m)
			}
		}
	}
	if len(p.next.asked) > 0 {
		t.Errorf("other plugins were asked %v", p.next.asked)
	}
	for _, qtype := range []uint16{dns.TypeAXFR, dns.TypeIXFR} {
		if m := ask(t, p.Tenantry, shop, home, qtype); m.Rcode != dns.RcodeRefused {
			t.Errorf("answered %v", m)
		}
	}
}

// H06: the rest of the world, and shared names of the host, are for the other plugins, and the filter reads the answers.
func TestNamesThatOtherPluginsAnswer(t *testing.T) {
	p := makePlanes(t)
	for _, name := range []string{
		"example.com.", "git.tools.svc.cluster.local.", reversed(t, "10.2.0.4"), reversed(t, "198.51.100.7"), home,
		"dns-version.cluster.local.",
	} {
		p.next.asked = nil
		m := ask(t, p.Tenantry, shop, name, dns.TypeA)
		if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 || !slices.Equal(p.next.asked, []string{name}) {
			t.Errorf("%s answered %v", name, m)
		}
	}
	// The shared alias leads to a name that exists inside, too; the records are the host's.
	p.service("acme", "web-5", "one/acme/web", "10.3.0.9")
	chain := func(target string) []dns.RR {
		return []dns.RR{
			&dns.CNAME{Hdr: dns.RR_Header{Name: "alias.tools.svc.cluster.local.", Rrtype: dns.TypeCNAME}, Target: target},
			&dns.A{Hdr: dns.RR_Header{Name: target, Rrtype: dns.TypeA}},
		}
	}
	for target, records := range map[string]int{
		"web.acme.svc.cluster.local.": 0, "web.shop.svc.cluster.local.": 0, "kubernetes.default.svc.cluster.local.": 0,
		"git.tools.svc.cluster.local.": 2, "example.com.": 2,
	} {
		p.next.records = map[string][]dns.RR{"alias.tools.svc.cluster.local.": chain(target)}
		if m := ask(t, p.Tenantry, shop, "alias.tools.svc.cluster.local.", dns.TypeA); len(m.Answer) != records {
			t.Errorf("an alias of %s answered %v", target, m)
		}
	}
	// The host's API server is never shared.
	p.directory.setSpace("default", &space{shared: true})
	checkRcode(t, p, other, "kubernetes.default.svc.cluster.local.", dns.RcodeNameError)
	if m := ask(t, p.Tenantry, other, reversed(t, "10.2.0.3"), dns.TypePTR); m.Rcode != dns.RcodeNameError {
		t.Errorf("answered %v", m)
	}
	// A namespace inside hides the shared one of the host.
	p.service("acme", "web-4", "one/tools/web", "10.3.0.8")
	if m := ask(t, p.Tenantry, shop, "git.tools.svc.cluster.local.", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("answered %v", m)
	}
	if m := ask(t, p.Tenantry, other, "git.tools.svc.cluster.local.", dns.TypeA); m.Rcode != dns.RcodeSuccess {
		t.Errorf("answered %v", m)
	}
}

// H01: an ExternalName is followed in the view of its control plane; a hidden target is as one that does not exist.
func TestExternalNamesInside(t *testing.T) {
	p := makePlanes(t)
	for name, want := range map[string]string{
		"to-data":   "10.3.0.4 api.data.svc.cluster.local.",
		"to-shared": "10.2.0.4 git.tools.svc.cluster.local.",
		"to-world":  "192.0.2.1 www.example.com.",
	} {
		m := ask(t, p.Tenantry, shop, name+".shop.svc.cluster.local.", dns.TypeA)
		if m.Rcode != dns.RcodeSuccess || strings.Join(values(m), " ") != want {
			t.Errorf("%s answered %v", name, m)
		}
	}
	var texts []string
	for _, name := range []string{"to-nothing", "to-host", "to-alias"} {
		m := ask(t, p.Tenantry, shop, name+".shop.svc.cluster.local.", dns.TypeA)
		m.Id, m.Question = 0, nil
		texts = append(texts, m.String())
		if m.Rcode != dns.RcodeSuccess || len(m.Answer) > 0 || texts[0] != m.String() {
			t.Errorf("%s answered %v", name, m)
		}
	}
}

// H06: pods that no control plane has get no names inside, whatever they are called.
func TestOthersSeeNothingInside(t *testing.T) {
	p := makePlanes(t)
	for _, from := range []string{acme, acmeLab, beta, system, node, absent} {
		for _, name := range []string{
			"web.shop.svc.cluster.local.", "web.acme.svc.cluster.local.", "kubernetes.default.svc.cluster.local.",
			reversed(t, "10.3.0.1"),
		} {
			m := ask(t, p.Tenantry, from, name, dns.TypeA)
			if answered := values(m); len(answered) > 0 && answered[0] != "10.9.9.9" {
				t.Errorf("%s asked %s and was answered %v", from, name, m)
			}
		}
	}
	for _, from := range []string{acme, beta, node, absent} {
		checkRcode(t, p, from, "web.shop.svc.cluster.local.", dns.RcodeNameError)
	}
}

func checkRcode(t *testing.T, p planes, from, name string, rcode int) {
	t.Helper()
	if m := ask(t, p.Tenantry, from, name, dns.TypeA); m.Rcode != rcode {
		t.Errorf("%s asked %s and was answered %v", from, name, m)
	}
}

// H06: an address that pods of two control planes, or one and a pod of the host, have is of neither.
func TestAddressesOfControlPlanesAreReused(t *testing.T) {
	const name = "web.shop.svc.cluster.local."
	for _, second := range []string{"two/shop/web", "one/data/web", ""} {
		p := makePlanes(t)
		checkRcode(t, p, shop, name, dns.RcodeSuccess)
		p.pod("acme", "second", second, shop, "")
		checkRcode(t, p, shop, name, dns.RcodeNameError)
		checkRcode(t, p, shop, "web.acme.svc.cluster.local.", dns.RcodeNameError)
		p.directory.onPodGone(&core.Pod{ObjectMeta: marked("acme", "front-1", "one/shop/front")})
		want := map[string]string{"two/shop/web": "10.3.0.2", "one/data/web": "10.3.0.1", "": ""}[second]
		if m := ask(t, p.Tenantry, shop, name, dns.TypeA); strings.Join(values(m), " ") != want {
			t.Errorf("%q answered %v", second, m)
		}
	}
}

// H06: two Services with the same marks do not take turns, and what is left answers when one is gone.
func TestMarksCollide(t *testing.T) {
	p := makePlanes(t)
	answers := func(want string) {
		t.Helper()
		if m := ask(t, p.Tenantry, shop, "web.shop.svc.cluster.local.", dns.TypeA); strings.Join(values(m), " ") != want {
			t.Errorf("answered %v, not %s", m, want)
		}
	}
	p.service("acme", "adopted", "one/shop/web", "10.3.0.7")
	answers("10.3.0.7")
	p.service("acme", "zero", "one/shop/web", "10.3.0.8")
	answers("10.3.0.7")
	p.directory.onServiceGone(&core.Service{ObjectMeta: marked("acme", "adopted", "")})
	answers("10.3.0.1")
	// The marks go, or name another object: the old name goes with them.
	p.service("acme", "web-1", "", "10.3.0.1")
	answers("10.3.0.8")
	p.service("acme", "zero", "one/data/web", "10.3.0.8")
	answers("")
}

// H01: long names are read from annotations, in full. The label has only the beginning of one, and a hash.
func TestLongNames(t *testing.T) {
	p := makePlanes(t)
	long := strings.Repeat("n", 62)
	p.service("acme", "long-a", "one/"+long+"a/web", "10.3.1.1")
	p.service("acme", "long-b", "one/"+long+"b/web", "10.3.1.2")
	for letter, want := range map[string]string{"a": "10.3.1.1", "b": "10.3.1.2"} {
		m := ask(t, p.Tenantry, shop, "web."+long+letter+".svc.cluster.local.", dns.TypeA)
		if strings.Join(values(m), " ") != want {
			t.Errorf("answered %v", m)
		}
	}
	checkRcode(t, p, shop, "web.a-hash.svc.cluster.local.", dns.RcodeNameError)
}

// A namespace inside that is called as the one on the host is asked for by its name.
func TestANamespaceInsideCalledAsTheHosts(t *testing.T) {
	p := makePlanes(t)
	p.service("acme", "api-2", "one/acme/api", "10.3.1.3")
	checkRcode(t, p, shop, "api.acme.svc.cluster.local.", dns.RcodeSuccess)
	checkRcode(t, p, shop, "web.acme.svc.cluster.local.", dns.RcodeNameError)
	checkRcode(t, p, other, "web.acme.svc.cluster.local.", dns.RcodeSuccess)
}

// H01: verified names of pods are of pods inside.
func TestPodsInside(t *testing.T) {
	p := makePlanes(t)
	who, _ := p.viewer(netip.MustParseAddr(shop))
	v := p.view(who)
	for ip, want := range map[string]string{"10.1.2.1": "shop/db-0", data: "data/job", other: "", abroad: "", acme: "", "10.1.2.4": ""} {
		found := ""
		for _, each := range v.PodIndex(ip) {
			found += each.Namespace + "/" + each.Name
		}
		if found != want {
			t.Errorf("%s is %q, not %q", ip, found, want)
		}
	}
}

// H01: a pod that asks for its API server before its address is known does not get the host's.
func TestTheAPIServerIsWaitedFor(t *testing.T) {
	p := makePlanes(t)
	p.grace = time.Minute
	answers := make(chan *dns.Msg)
	go func() { answers <- ask(t, p.Tenantry, absent, "kubernetes.default.svc.cluster.local.", dns.TypeA) }()
	for waiting := 0; waiting < 1; {
		p.directory.mutex.RLock()
		waiting = p.directory.waiters
		p.directory.mutex.RUnlock()
	}
	p.pod("acme", "new", "one/shop/new", absent, "")
	if m := <-answers; strings.Join(values(m), " ") != "10.3.0.5" {
		t.Errorf("answered %v", m)
	}
	// Other clients get the host's in the end, and at once if there are no control planes.
	p.grace = time.Millisecond
	checkRcode(t, p, "10.1.0.77", "kubernetes.default.svc.cluster.local.", dns.RcodeSuccess)
	alone := made(&world{})
	alone.grace = time.Hour
	if m := ask(t, alone, absent, "kubernetes.default.svc.cluster.local.", dns.TypeA); m.Rcode != dns.RcodeSuccess {
		t.Errorf("answered %v", m)
	}
}

// Without the plugin kubernetes, as in NodeLocal DNSCache, there is no answer that could be wrong.
func TestNoPluginKubernetes(t *testing.T) {
	p := makePlanes(t)
	p.cluster = nil
	checkRcode(t, p, shop, "web.shop.svc.cluster.local.", dns.RcodeServerFailure)
	checkRcode(t, p, shop, "kubernetes.default.svc.cluster.local.", dns.RcodeServerFailure)
	checkRcode(t, p, shop, "web.beta.svc.cluster.local.", dns.RcodeNameError)
	checkRcode(t, p, shop, "example.com.", dns.RcodeSuccess)
}

// What is gone leaves nothing behind.
func TestInnersAreForgotten(t *testing.T) {
	d := newDirectory()
	for i := range 3 {
		of := fmt.Sprintf("one/n%d/x", i%2)
		d.onPod(slimmed(&core.Pod{ObjectMeta: marked("acme", fmt.Sprint("p", i), of)}))
		d.onService(slimmed(&core.Service{ObjectMeta: marked("acme", fmt.Sprint("s", i), of)}))
		// Without names it is none that can be asked for.
		d.onService(slimmed(&core.Service{ObjectMeta: marked("acme", fmt.Sprint("t", i), "one//")}))
	}
	if !d.hasInners() || len(d.inners.copied) != 3 || len(d.inners.copies) != 2 || len(d.inners.namespaces) != 2 {
		t.Errorf("kept: %v", d.inners)
	}
	for i := range 3 {
		d.onPodGone(&core.Pod{ObjectMeta: marked("acme", fmt.Sprint("p", i), "")})
		d.onServiceGone(&core.Service{ObjectMeta: marked("acme", fmt.Sprint("s", i), "")})
	}
	if d.hasInners() || len(d.inners.twins)+len(d.inners.copied)+len(d.inners.copies) > 0 {
		t.Errorf("left: %v", d.inners)
	}
}
