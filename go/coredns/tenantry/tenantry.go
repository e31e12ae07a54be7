// Package tenantry is a plugin of CoreDNS by which a tenant of Tenantry resolves the names of its own namespaces and of
// shared ones only.
//
// The plugin knows a client by the address of its pod. It answers NXDOMAIN for names that the client may not see, so that
// resolvers continue with their search lists, and the answer is the same for namespaces that exist and that do not.
//
// A pod of a VirtualControlPlane resolves the names inside of that control plane instead; view.go shows how.
package tenantry

import (
	"context"
	"net/netip"
	"time"

	"github.com/coredns/coredns/plugin"
	cluster "github.com/coredns/coredns/plugin/kubernetes"
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
	cluster   *cluster.Kubernetes // the plugin kubernetes of the same server; nil where there is none
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
		is := t.judge(who, known, name, about)
		for !known && is != visible && t.await(ctx, ip) {
			who, known = t.viewer(ip)
			is = t.judge(who, known, name, about)
		}
		switch is {
		case concealed:
			hidden.WithLabelValues(metrics.WithServer(ctx)).Inc()
			return t.deny(w, r, zone)
		case inside:
			if t.cluster == nil {
				return dns.RcodeServerFailure, nil
			}
			return t.inside(who).ServeDNS(ctx, w, r)
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

// verdict is what a question is to a viewer.
type verdict int

const (
	// concealed is a question that gets the answer that there is no such name.
	concealed verdict = iota
	// visible is a question that the other plugins answer.
	visible
	// ambiguous is visible to the client, unless it turns out to be a pod of a control plane.
	ambiguous
	// inside is a question about a name inside of the viewer's control plane.
	inside
)

// judge returns what a question about a name, and an address in it, is to a viewer.
func (t *Tenantry) judge(who viewer, known bool, name string, about netip.Addr) verdict {
	switch {
	case who.isInside() && t.isInside(who, name, about):
		return inside
	case !t.answers(who, name, about):
		return concealed
	case !known && t.isAPIServer(name) && t.directory.hasInners():
		return ambiguous
	}
	return visible
}

// isInside returns whether a name is one inside of the control plane of a viewer, whether it exists there or not.
func (t *Tenantry) isInside(who viewer, name string, about netip.Addr) bool {
	zones := t.zones
	if t.cluster != nil {
		zones = t.cluster.Zones
	}
	zone := zones.Matches(name)
	if zone == "" {
		return false
	}
	if about.IsValid() {
		return t.cluster != nil && t.view(who).names(about.String())
	}
	what := parse(name, zone)
	return what.namespace != "" && t.directory.meant(who, what.namespace) != ""
}

// isAPIServer returns whether a name is that of the API server, of which each control plane has its own.
//
// A program that asks for the host's by mistake would talk to another API server until it ends. For other names a pod that
// is not known yet is at worst answered that there are none.
func (t *Tenantry) isAPIServer(name string) bool {
	zone := t.zones.Matches(name)
	return zone != "" && parse(name, zone) == apiserver
}

// answers returns whether a viewer may get an answer from the other plugins.
func (t *Tenantry) answers(who viewer, name string, about netip.Addr) bool {
	if about.IsValid() && !t.directory.seesAddress(who, about) {
		return false
	}
	return t.sees(who, name)
}

// sees reports whether a viewer may know of a name, in whichever of our zones it is read.
func (t *Tenantry) sees(who viewer, name string) bool {
	for _, zone := range t.zones {
		if within(name, zone) && !t.directory.sees(who, parse(name, zone)) {
			return false
		}
	}
	return true
}

// await waits for word of the pod that has an address, and reports whether some came.
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
