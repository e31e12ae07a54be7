package tenantry

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"
)

// silent answers nothing, so that only our own part is measured.
type silent struct{}

func (silent) Name() string { return "silent" }

func (silent) ServeDNS(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
	return dns.RcodeSuccess, nil
}

// BenchmarkServeDNS measures a question in a cluster of 10,000 namespaces and 100,000 pods, from all cores at once.
func BenchmarkServeDNS(b *testing.B) {
	p := made(nil)
	p.Next = silent{}
	for i := range 10_000 {
		name := fmt.Sprint("n", i)
		p.directory.setSpace(name, &space{owned: true, tenant: name})
		for j := range 10 {
			ip := netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), byte(j)})
			p.directory.setPod(object{name, fmt.Sprint(j)}, false, []netip.Addr{ip}, nil)
		}
	}
	for name, question := range map[string]string{
		"own":     "web.n4660.svc.cluster.local.",
		"hidden":  "web.n4661.svc.cluster.local.",
		"outside": "example.com.",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := new(dns.Msg)
				r.SetQuestion(question, dns.TypeA)
				w := &test.ResponseWriter{RemoteIP: "11.18.52.3"}
				for pb.Next() {
					if _, err := p.ServeDNS(context.Background(), w, r); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkInside measures a question from a pod of a control plane with 1,000 Services and 1,000 pods, one of 100 in the same
// namespace of the host. What the plugin kubernetes does with it is measured, too; "host" is that alone.
func BenchmarkInside(b *testing.B) {
	p := makePlanes(b)
	for i := range 100 {
		owner := fmt.Sprint("o", i)
		for j := range 1_000 {
			name, at := fmt.Sprint("s", j), plane{"acme", owner}
			p.directory.setService(object{"acme", owner + name}, nil, &inner{at, fmt.Sprint("n", j%10), name})
		}
		for j := range 1_000 {
			name, at := fmt.Sprint("p", j), plane{"acme", owner}
			ip := netip.AddrFrom4([4]byte{12, byte(i), byte(j >> 8), byte(j)})
			of := &twin{inner: inner{at, fmt.Sprint("n", j%10), name}}
			p.directory.setPod(object{"acme", owner + name}, false, []netip.Addr{ip}, of)
		}
	}
	measure := func(name, question string, qtype uint16, serve plugin.Handler) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				w := &test.ResponseWriter{RemoteIP: shop}
				for pb.Next() {
					r := new(dns.Msg)
					r.SetQuestion(question, qtype)
					if _, err := serve.ServeDNS(context.Background(), w, r); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
	measure("own", "web.shop.svc.cluster.local.", dns.TypeA, p)
	measure("searched", "web.acme.svc.cluster.local.", dns.TypeA, p)
	measure("headless", "db.shop.svc.cluster.local.", dns.TypeA, p)
	measure("reverse", reversed(b, "10.3.0.1"), dns.TypePTR, p)
	measure("hidden", "web.beta.svc.cluster.local.", dns.TypeA, p)
	measure("host", "git.tools.svc.cluster.local.", dns.TypeA, p.cluster)
}
