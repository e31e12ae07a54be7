package tenantry

import (
	"net/netip"
	"strings"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/miekg/dns"
)

// subject is what a name in one of our zones is about.
//
// A name that concerns no namespace (the zone itself, "svc" and "pod", and names outside of Kubernetes' DNS
// specification) has an empty namespace, and every client may see it.
type subject struct {
	namespace string
	service   string // "" for the namespace itself and for names of pods
}

// parse reads a name as the plugin kubernetes does: [...].service.namespace.svc.zone or [...].namespace.pod.zone.
//
// name and zone are lower case and end with a dot, and name is in the zone.
func parse(name, zone string) subject {
	base := strings.TrimSuffix(name[:len(name)-len(zone)], ".")
	base, kind := cut(base)
	if kind != "svc" && kind != "pod" {
		return subject{}
	}
	base, namespace := cut(base)
	if kind == "pod" {
		return subject{namespace: namespace}
	}
	_, service := cut(base)
	return subject{namespace: namespace, service: service}
}

// within reports whether a name is a zone's own or one in it; both are lower case and end with a dot.
func within(name, zone string) bool {
	before := len(name) - len(zone)
	return zone == "." || strings.HasSuffix(name, zone) && (before == 0 || name[before-1] == '.')
}

// cut takes the last label off a name without a dot at its end. A dot that belongs to a label is written `\.`.
func cut(name string) (rest, label string) {
	for end := len(name); ; {
		dot := strings.LastIndexByte(name[:end], '.')
		if dot < 0 {
			return "", name
		}
		slashes := 0
		for dot-slashes > 0 && name[dot-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return name[:dot], name[dot+1:]
		}
		end = dot
	}
}

// address returns the address that a name of the reverse zones is about; it is not valid where there is none.
//
// It is read as the plugin kubernetes reads it, which takes an IPv4 address in an IPv6 name for the IPv4 address.
func address(name string) netip.Addr {
	text := dnsutil.ExtractAddressFromReverse(name)
	if text == "" {
		return netip.Addr{}
	}
	found, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return found
}

var shared = netip.MustParsePrefix("100.64.0.0/10")

// isLocal reports whether an address means nothing outside of this cluster and its surroundings (RFC 6303, RFC 7793).
func isLocal(ip netip.Addr) bool {
	return ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || shared.Contains(ip)
}

// targets calls f with each name that a record points to.
func targets(rr dns.RR, f func(name string) bool) bool {
	switch rr := rr.(type) {
	case *dns.CNAME:
		return f(rr.Target)
	case *dns.DNAME:
		return f(rr.Target)
	case *dns.PTR:
		return f(rr.Ptr)
	case *dns.SRV:
		return f(rr.Target)
	case *dns.MX:
		return f(rr.Mx)
	case *dns.NS:
		return f(rr.Ns)
	case *dns.NAPTR:
		return f(rr.Replacement)
	case *dns.SVCB:
		return f(rr.Target)
	case *dns.HTTPS:
		return f(rr.Target)
	}
	return false
}
