package tenantry

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	core "k8s.io/api/core/v1"
)

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
