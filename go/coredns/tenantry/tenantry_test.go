package tenantry

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"
)

const home = "cluster.local."

// The clients of the tests.
const (
	acme     = "10.1.0.1" // a pod of acme
	acmeLab  = "10.1.0.2" // a pod in a customer's part of acme
	beta     = "10.1.0.3" // a pod of beta
	system   = "10.1.0.4" // a pod of kube-system
	node     = "10.1.0.5" // a node
	worker   = "10.1.0.9" // a node with a pod of a shared namespace
	absent   = "10.1.0.6"
	recycled = "10.1.0.7" // two pods of different tenants
	broken   = "10.1.0.8" // a pod of a tenant without a uid
)

// world answers every question with what it is told, as a cluster would in which all names exist.
type world struct {
	// Clients ask at the same time.
	mutex   sync.Mutex
	records map[string][]dns.RR
	extra   []dns.RR
	asked   []string
	said    *dns.Msg
}

func (w *world) Name() string { return "world" }

func (w *world) ServeDNS(_ context.Context, writer dns.ResponseWriter, r *dns.Msg) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.asked = append(w.asked, r.Question[0].Name)
	m := new(dns.Msg)
	m.SetReply(r)
	m.Answer = w.records[strings.ToLower(r.Question[0].Name)]
	if m.Answer == nil {
		m.Answer = []dns.RR{test.A(r.Question[0].Name + " 5 IN A 10.9.9.9")}
	}
	m.Extra = w.extra
	w.said = m
	return dns.RcodeSuccess, writer.WriteMsg(m)
}

func made(next *world) *Tenantry {
	d := newDirectory()
	for name, is := range map[string]space{
		"acme":        {owned: true, tenant: "uid-a", zone: "z1"},
		"acme-team":   {owned: true, tenant: "uid-a", zone: "z1"},
		"acme-lab":    {owned: true, tenant: "uid-a", zone: "z2"},
		"beta":        {owned: true, tenant: "uid-b", zone: "z3"},
		"beta-shared": {owned: true, tenant: "uid-b", zone: "z3", shared: true},
		"odd":         {owned: true},
		"odd-too":     {owned: true},
		"default":     {},
		"kube-system": {},
		"tools":       {shared: true},
	} {
		d.setSpace(name, &is)
	}
	for i, each := range []struct {
		namespace, ip string
		node          bool
	}{
		{"acme", acme, false},
		{"acme-lab", acmeLab, false},
		{"beta", beta, false},
		{"kube-system", system, false},
		{"kube-system", node, true},
		{"tools", worker, true},
		{"acme", recycled, false},
		{"beta", recycled, false},
		{"odd", broken, false},
	} {
		d.setPod(object{each.namespace, fmt.Sprint("pod-", i)}, each.node, []netip.Addr{netip.MustParseAddr(each.ip)}, nil)
	}
	d.setService(object{"acme", "web"}, parseAll([]string{"10.2.0.1"}), nil)
	d.setService(object{"beta", "web"}, parseAll([]string{"10.2.0.2", "2001:db8::2", "198.51.100.2"}), nil)
	d.setService(object{"default", "kubernetes"}, parseAll([]string{"10.2.0.3"}), nil)
	d.setService(object{"tools", "git"}, parseAll([]string{"10.2.0.4"}), nil)
	return &Tenantry{
		Next:      next,
		zones:     []string{home, "in-addr.arpa.", "ip6.arpa."},
		directory: d,
		synced:    func() bool { return true },
	}
}

// ask returns what a client is answered.
func ask(t testing.TB, plugin *Tenantry, from, name string, qtype uint16) *dns.Msg {
	t.Helper()
	r := new(dns.Msg)
	r.SetQuestion(name, qtype)
	return send(t, plugin, from, r)
}

func send(t testing.TB, plugin *Tenantry, from string, r *dns.Msg) *dns.Msg {
	t.Helper()
	recorder := dnstest.NewRecorder(&test.ResponseWriter{RemoteIP: from})
	code, err := plugin.ServeDNS(context.Background(), recorder, r)
	if err != nil {
		t.Fatal(err)
	}
	if recorder.Msg == nil {
		// As CoreDNS's server does.
		recorder.Msg = new(dns.Msg)
		recorder.Msg.SetRcode(r, code)
	}
	return recorder.Msg
}

func reversed(t testing.TB, ip string) string {
	t.Helper()
	name, err := dns.ReverseAddr(ip)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// H06: every way to name what is another tenant's ends in NXDOMAIN, and nothing behind us is asked.
func TestAttacks(t *testing.T) {
	names := []string{
		"web.beta.svc.cluster.local.",
		"WEB.Beta.sVc.CLUSTER.local.",
		"beta.svc.cluster.local.",
		"beta.pod.cluster.local.",
		"10-1-0-3.beta.pod.cluster.local.",
		"_http._tcp.web.beta.svc.cluster.local.",
		"pod-0.web.beta.svc.cluster.local.",
		"far.pin._zone.web.beta.svc.cluster.local.",
		"a.b.c.d.e.web.beta.svc.cluster.local.",
		`a\.svc.beta.svc.cluster.local.`,
		`web.a\.acme.svc.cluster.local.`, // a dot in a label is none between labels
		`web.beta\\.beta.svc.cluster.local.`,
		"web.beta-shared.svc.cluster.local.", // shared by its own label only: a tenant's is never
		"web.no-such.svc.cluster.local.",
		"*.*.svc.cluster.local.",
		"*.beta.svc.cluster.local.",
		"any.any.svc.cluster.local.",
		"web.kube-system.svc.cluster.local.",
		"other.default.svc.cluster.local.",
		"default.svc.cluster.local.",
		"10-1-0-9.default.pod.cluster.local.",
		"kubernetes.default.pod.cluster.local.",
		"web.odd.svc.cluster.local.",
		"web.beta.svc.in-addr.arpa.", // every zone of the plugin kubernetes is read alike
		"web.beta.svc.ip6.arpa.",
	}
	for _, name := range names {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeANY, dns.TypeTXT, dns.TypePTR, dns.TypeNS} {
			for _, from := range []string{acme, acmeLab, broken} {
				checkDenied(t, from, name, qtype)
			}
		}
	}
}

func checkDenied(t *testing.T, from, name string, qtype uint16) {
	t.Helper()
	next := &world{}
	m := ask(t, made(next), from, name, qtype)
	if m.Rcode != dns.RcodeNameError || len(m.Answer) > 0 || len(m.Extra) > 0 || len(next.asked) > 0 {
		t.Errorf("%s asked %s %s and was answered %v", from, name, dns.TypeToString[qtype], m)
	}
}

// H06: what belongs to another tenant and what does not exist are answered the same, but for the question itself.
func TestHiddenIsAsNonexistent(t *testing.T) {
	for _, pair := range [][2]string{
		{"web.beta.svc.cluster.local.", "web.none.svc.cluster.local."},
		{"beta.svc.cluster.local.", "none.svc.cluster.local."},
		{reversed(t, beta), reversed(t, "10.1.0.99")},
		{reversed(t, "10.2.0.2"), reversed(t, "10.2.0.99")},
		{reversed(t, node), reversed(t, "10.1.0.98")},
	} {
		var texts [2]string
		for i, name := range pair {
			m := ask(t, made(&world{}), acme, name, dns.TypePTR)
			m.Id, m.Question = 0, nil
			texts[i] = m.String()
		}
		if texts[0] != texts[1] {
			t.Errorf("%s and %s differ:\n%s\n%s", pair[0], pair[1], texts[0], texts[1])
		}
	}
}

// H06: reverse names of others, in all the forms that the plugin kubernetes reads.
func TestReverseAttacks(t *testing.T) {
	mapped := reversed(t, "2001:db8::2")
	names := []string{
		reversed(t, beta), reversed(t, "10.2.0.2"), reversed(t, "198.51.100.2"), strings.ToUpper(reversed(t, beta)),
		mapped, strings.ToUpper(mapped), reversed(t, node), reversed(t, worker), reversed(t, acmeLab), reversed(t, recycled),
		// 10.2.0.2 as an IPv4 address in an IPv6 one
		"2.0.0.0.2.0.a.0.f.f.f.f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.",
	}
	for _, name := range names {
		checkDenied(t, acme, name, dns.TypePTR)
		checkDenied(t, acme, name, dns.TypeANY)
	}
}

// H06: own names, shared ones, the API server's, and what is not in the cluster, are answered.
func TestWhatIsSeen(t *testing.T) {
	for _, each := range []struct{ from, name string }{
		{acme, "web.acme.svc.cluster.local."},
		{acme, "web.acme-team.svc.cluster.local."},
		{acme, "10-1-0-1.acme.pod.cluster.local."},
		{acme, "Git.Tools.svc.cluster.local."},
		{acme, "kubernetes.default.svc.cluster.local."},
		{acme, "_https._tcp.kubernetes.default.svc.cluster.local."},
		{acme, "example.com."},
		{acme, "example.com.acme.svc.cluster.local."},
		{acme, "dns-version.cluster.local."},
		{acme, "svc.cluster.local."},
		{acme, "cluster.local."},
		{acme, "beta.svc.cluster.local.example.com."},
		{acme, "notcluster.local."},
		{acme, reversed(t, acme)},
		{acme, reversed(t, "10.2.0.1")},
		{acme, reversed(t, "10.2.0.3")},
		{acme, reversed(t, "10.2.0.4")},
		{acme, reversed(t, "198.51.100.7")},
		{acmeLab, "web.acme-lab.svc.cluster.local."},
		{system, "web.beta.svc.cluster.local."},
		{system, "web.none.svc.cluster.local."},
		{system, reversed(t, beta)},
		{node, "web.kube-system.svc.cluster.local."},
		{absent, "web.kube-system.svc.cluster.local."},
	} {
		next := &world{}
		m := ask(t, made(next), each.from, each.name, dns.TypeA)
		if m.Rcode != dns.RcodeSuccess || len(m.Answer) == 0 || len(next.asked) != 1 {
			t.Errorf("%s asked %s and was answered %v", each.from, each.name, m)
		}
	}
}

// H06: an unknown or ambiguous client sees nothing of tenants, and zones of a tenant nothing of each other.
func TestStrangersAndZones(t *testing.T) {
	for _, from := range []string{node, absent, recycled} {
		for _, name := range []string{
			"web.acme.svc.cluster.local.", "web.beta.svc.cluster.local.", "web.none.svc.cluster.local.", reversed(t, acme),
			reversed(t, "10.2.0.1"),
		} {
			checkDenied(t, from, name, dns.TypeA)
		}
	}
	checkDenied(t, acme, "web.acme-lab.svc.cluster.local.", dns.TypeA)
	checkDenied(t, acmeLab, "web.acme.svc.cluster.local.", dns.TypeA)
	checkDenied(t, broken, "web.odd-too.svc.cluster.local.", dns.TypeA)
}

// H06: zones are not transferred, and what is no question is refused.
func TestTransfersAreRefused(t *testing.T) {
	for _, from := range []string{acme, absent, node} {
		for _, qtype := range []uint16{dns.TypeAXFR, dns.TypeIXFR} {
			for _, name := range []string{home, "in-addr.arpa.", ".", "acme.svc.cluster.local.", "CLUSTER.local."} {
				next := &world{}
				if m := ask(t, made(next), from, name, qtype); m.Rcode != dns.RcodeRefused || len(next.asked) > 0 {
					t.Errorf("%s asked for %s and was answered %v", from, name, m)
				}
			}
		}
	}
	update := new(dns.Msg)
	update.SetUpdate(home)
	two := new(dns.Msg)
	two.SetQuestion("web.acme.svc.cluster.local.", dns.TypeA)
	two.Question = append(two.Question, dns.Question{Name: "web.beta.svc.cluster.local.", Qtype: dns.TypeA, Qclass: 1})
	for _, r := range []*dns.Msg{update, two} {
		if m := send(t, made(&world{}), acme, r); m.Rcode != dns.RcodeRefused {
			t.Errorf("answered %v", m)
		}
	}
}

// H06: an answer that holds more than the question asked for is cut, and what the cache has is left as it is.
func TestAnswersAreFiltered(t *testing.T) {
	name := "x.acme.svc.cluster.local."
	chain := []dns.RR{
		test.CNAME(name + " 5 IN CNAME y.acme.svc.cluster.local."),
		test.CNAME("y.acme.svc.cluster.local. 5 IN CNAME Web.Beta.svc.cluster.local."),
		test.A("Web.Beta.svc.cluster.local. 5 IN A 10.2.0.2"),
	}
	next := &world{records: map[string][]dns.RR{name: chain}}
	if m := ask(t, made(next), acme, name, dns.TypeA); m.Rcode != dns.RcodeSuccess || len(m.Answer) > 0 {
		t.Errorf("answered %v", m)
	}
	if m := ask(t, made(next), system, name, dns.TypeA); len(m.Answer) != len(chain) {
		t.Errorf("answered %v", m)
	}
	pointers := []dns.RR{
		test.PTR("1.0.1.10.in-addr.arpa. 5 IN PTR evil.beta.svc.cluster.local."),
		test.PTR("1.0.1.10.in-addr.arpa. 5 IN PTR web.acme.svc.cluster.local."),
	}
	next = &world{records: map[string][]dns.RR{"1.0.1.10.in-addr.arpa.": pointers}}
	m := ask(t, made(next), acme, "1.0.1.10.in-addr.arpa.", dns.TypePTR)
	if len(m.Answer) != 1 || m.Answer[0].(*dns.PTR).Ptr != "web.acme.svc.cluster.local." {
		t.Errorf("answered %v", m)
	}
	if len(next.said.Answer) != 2 || pointers[0].(*dns.PTR).Ptr != "evil.beta.svc.cluster.local." {
		t.Error("the answer that the cache keeps was changed")
	}
	// As rewrite, or a cache that answers for another name, could make it.
	next = &world{records: map[string][]dns.RR{name: {test.A("web.beta.svc.cluster.local. 5 IN A 10.2.0.2")}}}
	if m := ask(t, made(next), acme, name, dns.TypeA); len(m.Answer) > 0 {
		t.Errorf("answered %v", m)
	}
	next = &world{extra: []dns.RR{
		test.A("web.acme.svc.cluster.local. 5 IN A 10.2.0.1"), test.A("WEB.beta.svc.cluster.local. 5 IN A 10.2.0.2"),
	}}
	m = ask(t, made(next), acme, name, dns.TypeSRV)
	if len(m.Answer) != 1 || len(m.Extra) != 1 || m.Extra[0].Header().Name != "web.acme.svc.cluster.local." {
		t.Errorf("answered %v", m)
	}
	if len(next.said.Extra) != 2 {
		t.Error("the answer that the cache keeps was changed")
	}
}

// H06: what is written around WriteMsg is read, too.
func TestRawAnswersAreFiltered(t *testing.T) {
	r := new(dns.Msg)
	r.SetQuestion("x.acme.svc.cluster.local.", dns.TypeA)
	m := new(dns.Msg)
	m.SetReply(r)
	m.Answer = []dns.RR{test.A("web.beta.svc.cluster.local. 5 IN A 10.2.0.2")}
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	p := made(&world{})
	p.Next = raw(wire)
	if m := send(t, p, acme, r); m.Rcode != dns.RcodeSuccess || len(m.Answer) > 0 {
		t.Errorf("answered %v", m)
	}
	p.Next = raw("nonsense")
	if _, err := p.ServeDNS(context.Background(), &test.ResponseWriter{RemoteIP: acme}, r); err == nil {
		t.Error("what cannot be read was written")
	}
}

// raw writes bytes.
type raw []byte

func (raw) Name() string { return "raw" }

func (r raw) ServeDNS(_ context.Context, w dns.ResponseWriter, _ *dns.Msg) (int, error) {
	_, err := w.Write(r)
	return dns.RcodeSuccess, err
}

// H06: the address of a pod that has ended is the next one's.
func TestAddressesAreReused(t *testing.T) {
	p := made(&world{})
	ip := []netip.Addr{netip.MustParseAddr("10.1.0.50")}
	p.directory.setPod(object{"acme", "first"}, false, ip, nil)
	p.directory.setPod(object{"beta", "second"}, false, ip, nil)
	if m := ask(t, p, "10.1.0.50", "web.beta.svc.cluster.local.", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("answered %v", m)
	}
	p.directory.setPod(object{"acme", "first"}, false, nil, nil)
	if m := ask(t, p, "10.1.0.50", "web.beta.svc.cluster.local.", dns.TypeA); m.Rcode != dns.RcodeSuccess {
		t.Errorf("answered %v", m)
	}
	if m := ask(t, p, "10.1.0.50", "web.acme.svc.cluster.local.", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("answered %v", m)
	}
}

// A pod that asks before word of it has come is answered when it comes.
func TestAPodIsWaitedFor(t *testing.T) {
	p := made(&world{})
	p.grace = time.Minute
	answers := make(chan *dns.Msg)
	for range 2 {
		go func() { answers <- ask(t, p, absent, "web.acme.svc.cluster.local.", dns.TypeA) }()
	}
	for waiting := 0; waiting < 2; {
		p.directory.mutex.RLock()
		waiting = p.directory.waiters
		p.directory.mutex.RUnlock()
	}
	p.directory.setPod(object{"acme", "new"}, false, []netip.Addr{netip.MustParseAddr(absent)}, nil)
	for range 2 {
		if m := <-answers; m.Rcode != dns.RcodeSuccess {
			t.Errorf("answered %v", m)
		}
	}
	if p.directory.waiters != 0 || len(p.directory.waiting) != 0 {
		t.Errorf("%d still wait", p.directory.waiters)
	}
}

// No question waits for ever, and not too many at once.
func TestWaitingEnds(t *testing.T) {
	p := made(&world{})
	p.grace = time.Millisecond
	checkStranger := func() {
		t.Helper()
		if m := ask(t, p, absent, "web.acme.svc.cluster.local.", dns.TypeA); m.Rcode != dns.RcodeNameError {
			t.Errorf("answered %v", m)
		}
	}
	checkStranger()
	p.grace = time.Hour
	p.directory.waiters = maxWaiters
	checkStranger()
}

// Until the cluster is known, its names get SERVFAIL, which says "ask again".
func TestBeforeTheClusterIsKnown(t *testing.T) {
	p := made(&world{})
	p.synced = func() bool { return false }
	if m := ask(t, p, acme, "web.acme.svc.cluster.local.", dns.TypeA); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("answered %v", m)
	}
	if m := ask(t, p, acme, "example.com.", dns.TypeA); m.Rcode != dns.RcodeSuccess {
		t.Errorf("answered %v", m)
	}
}

// Networks that an administrator trusts see everything.
func TestTrust(t *testing.T) {
	p := made(&world{})
	p.trusted = []netip.Prefix{netip.MustParsePrefix("10.1.0.6/32")}
	if m := ask(t, p, absent, "web.acme.svc.cluster.local.", dns.TypeA); m.Rcode != dns.RcodeSuccess {
		t.Errorf("answered %v", m)
	}
}
