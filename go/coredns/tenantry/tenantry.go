// Package tenantry is a plugin of CoreDNS by which a tenant of Tenantry resolves the names of its own namespaces and of
// shared ones only.
//
// The plugin knows a client by the address of its pod. It answers NXDOMAIN for names that the client may not see, so that
// resolvers continue with their search lists, and the answer is the same for namespaces that exist and that do not.
package tenantry

import (
	"context"
	"net/netip"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metrics"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// Name is what the plugin is called in a Corefile.
const Name = "tenantry"

// ttl is how long the answer that there is no such name may be kept: as long as the plugin kubernetes says it of its own.
const ttl = 5

// Tenantry is the plugin.
type Tenantry struct {
	Next plugin.Handler

	zones     plugin.Zones
	trusted   []netip.Prefix
	grace     time.Duration
	directory *directory
	synced    func() bool
	backend   plugin.ServiceBackend // the plugin kubernetes of the same server; nil where there is none
}

// Name implements plugin.Handler.
func (t *Tenantry) Name() string { return Name }

// Ready implements ready.Readiness.
func (t *Tenantry) Ready() bool { return t.synced() }

// ServeDNS implements plugin.Handler.
func (t *Tenantry) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	state := request.Request{W: w, Req: r}
	name := state.Name()
	zone := t.zones.Matches(name)
	if !t.synced() {
		if zone == "" {
			return plugin.NextOrFailure(Name, t.Next, ctx, w, r)
		}
		return dns.RcodeServerFailure, nil
	}
	ip, err := netip.ParseAddr(state.IP())
	if err != nil {
		return dns.RcodeServerFailure, plugin.Error(Name, err)
	}
	ip = ip.Unmap().WithZone("")
	who, known := t.viewer(ip)
	if who.reach == everything {
		return plugin.NextOrFailure(Name, t.Next, ctx, w, r)
	}
	switch state.QType() {
	case dns.TypeAXFR, dns.TypeIXFR:
		return dns.RcodeRefused, nil
	}
	if zone != "" {
		if r.Opcode != dns.OpcodeQuery || len(r.Question) != 1 {
			return dns.RcodeRefused, nil
		}
		about := address(name)
		for ok := t.answers(who, name, about); !ok; ok = t.answers(who, name, about) {
			if known || !t.await(ctx, ip) {
				hidden.WithLabelValues(metrics.WithServer(ctx)).Inc()
				return t.deny(w, r, zone)
			}
			who, known = t.viewer(ip)
			if who.reach == everything {
				break
			}
		}
	}
	return plugin.NextOrFailure(Name, t.Next, ctx, &filter{ResponseWriter: w, plugin: t, who: who, ctx: ctx, state: state}, r)
}

// viewer returns the client that has an address, and whether it is known.
func (t *Tenantry) viewer(ip netip.Addr) (viewer, bool) {
	for _, each := range t.trusted {
		if each.Contains(ip) {
			return viewer{reach: everything}, true
		}
	}
	return t.directory.viewer(ip)
}

// answers returns whether a viewer may get an answer to a question.
func (t *Tenantry) answers(who viewer, name string, about netip.Addr) bool {
	if about.IsValid() && !t.directory.seesAddress(who, about) {
		return false
	}
	return t.sees(who, name)
}

// sees tells whether a viewer may know of a name, in whichever of our zones it is read.
func (t *Tenantry) sees(who viewer, name string) bool {
	for _, zone := range t.zones {
		if within(name, zone) && !t.directory.sees(who, parse(name, zone)) {
			return false
		}
	}
	return true
}

// await waits for word of the pod that has an address, and tells whether some came.
//
// A pod can ask before its node has told the API server of its address, and many programs ask for the names of others
// once, when they start.
func (t *Tenantry) await(ctx context.Context, ip netip.Addr) bool {
	if t.grace <= 0 {
		return false
	}
	known, done := t.directory.wait(ip)
	if known == nil {
		return false
	}
	defer done()
	timer := time.NewTimer(t.grace)
	defer timer.Stop()
	select {
	case <-known:
		return true
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}

// deny answers that there is no such name. No plugin behind us is asked: what it takes them to answer tells something.
func (t *Tenantry) deny(w dns.ResponseWriter, r *dns.Msg, zone string) (int, error) {
	m := new(dns.Msg)
	m.SetRcode(r, dns.RcodeNameError)
	m.Authoritative = true
	m.Ns = []dns.RR{&dns.SOA{
		Hdr:     dns.RR_Header{Name: zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:      "ns.dns." + zone,
		Mbox:    "hostmaster." + zone,
		Serial:  1,
		Refresh: 7200,
		Retry:   1800,
		Expire:  86400,
		Minttl:  ttl,
	}}
	if err := w.WriteMsg(m); err != nil {
		return dns.RcodeServerFailure, plugin.Error(Name, err)
	}
	return dns.RcodeSuccess, nil
}
