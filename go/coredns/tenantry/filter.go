package tenantry

import (
	"context"
	"strings"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// filter removes from answers what a viewer may not see.
//
// An answer can hold more than was asked for: a Service of type ExternalName can point to a name of any tenant, and the
// plugin kubernetes follows it without asking this one.
type filter struct {
	dns.ResponseWriter
	plugin *Tenantry
	who    viewer
	ctx    context.Context
	state  request.Request
}

// WriteMsg implements dns.ResponseWriter.
func (f *filter) WriteMsg(m *dns.Msg) error {
	switch {
	case f.anyHidden(m.Answer):
		m = f.without(m)
	case f.anyHidden(m.Ns) || f.anyHidden(m.Extra):
		m = shallow(m)
		m.Ns, m.Extra = f.visible(m.Ns), f.visible(m.Extra)
	}
	return f.ResponseWriter.WriteMsg(m)
}

// Write implements dns.ResponseWriter; plugins write messages, but nothing that is written may go around us.
func (f *filter) Write(wire []byte) (int, error) {
	m := new(dns.Msg)
	if err := m.Unpack(wire); err != nil {
		return 0, err
	}
	return len(wire), f.WriteMsg(m)
}

// without returns an answer that has hidden records as it would be if what they are about did not exist.
func (f *filter) without(m *dns.Msg) *dns.Msg {
	asked := f.state.QType()
	dropped := m.Answer
	m = shallow(m)
	m.Ns, m.Extra = f.visible(m.Ns), f.visible(m.Extra)
	if asked == dns.TypePTR {
		// Names of one address do not depend on each other.
		if m.Answer = f.visible(m.Answer); len(m.Answer) > 0 {
			return m
		}
	}
	// The plugin kubernetes takes a chain of names that ends nowhere for no chain at all, so all of it goes.
	m.Answer = nil
	m.Ns = f.authority(dropped)
	return m
}

// authority returns the SOA that the plugin kubernetes puts into an answer without records, as old as these records are.
func (f *filter) authority(dropped []dns.RR) []dns.RR {
	zone := f.plugin.zones.Matches(f.state.Name())
	if zone == "" || f.plugin.cluster == nil {
		return nil
	}
	records, err := plugin.SOA(f.ctx, f.plugin.cluster, zone, f.state, plugin.Options{})
	if err != nil {
		return nil
	}
	for _, record := range records {
		for _, each := range dropped {
			record.Header().Ttl = min(record.Header().Ttl, each.Header().Ttl)
		}
	}
	return records
}

func (f *filter) visible(records []dns.RR) []dns.RR {
	var kept []dns.RR
	for _, rr := range records {
		if !f.hides(rr) {
			kept = append(kept, rr)
		}
	}
	return kept
}

func (f *filter) anyHidden(records []dns.RR) bool {
	for _, rr := range records {
		if f.hides(rr) {
			return true
		}
	}
	return false
}

func (f *filter) hides(rr dns.RR) bool {
	return f.hidesName(rr.Header().Name) || targets(rr, f.hidesName)
}

func (f *filter) hidesName(name string) bool {
	return !f.plugin.sees(f.who, strings.ToLower(name))
}

// shallow copies a message, so that its sections can be replaced: the cache keeps the same one.
func shallow(m *dns.Msg) *dns.Msg {
	copied := *m
	return &copied
}
