package tenantry

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin/kubernetes"
	"github.com/miekg/dns"
)

func TestCorefile(t *testing.T) {
	for _, each := range []struct{ text, complaint string }{
		{"tenantry cluster.local", ""},
		{"tenantry", ""},
		{"tenantry {\n kubeconfig /a\n}", ""},
		{"tenantry {\n kubeconfig /a dev\n trust 10.0.0.0/8 2001:db8::/32\n wait 500ms\n}", ""},
		{"tenantry\ntenantry", "once per Server Block"},
		{"tenantry {\n trust 10.0.0.1\n}", "must name networks"},
		{"tenantry {\n trust\n}", "Wrong argument count"},
		{"tenantry {\n wait soon\n}", "from 0s to 10s"},
		{"tenantry {\n wait -1s\n}", "from 0s to 10s"},
		{"tenantry {\n wait 11s\n}", "from 0s to 10s"},
		{"tenantry {\n kubeconfig a b c\n}", "Wrong argument count"},
		{"tenantry {\n shared all\n}", `unknown property "shared"`},
	} {
		_, err := read(caddy.NewTestController("dns", each.text))
		if each.complaint == "" && err != nil || each.complaint != "" && (err == nil || !strings.Contains(err.Error(), each.complaint)) {
			t.Errorf("%q: %v, not %q", each.text, err, each.complaint)
		}
	}
	said, err := read(caddy.NewTestController("dns", "tenantry Cluster.Local {\n wait 1s\n trust 10.1.2.3/8\n}"))
	if err != nil || said.grace != time.Second || said.trusted[0].String() != "10.0.0.0/8" ||
		!slices.Equal(said.zones, []string{"cluster.local."}) {
		t.Errorf("read %v, %v", said, err)
	}
}

// H06: a zone that the plugin kubernetes serves and that we are not told of would be open to all.
func TestNoZoneIsLeftOpen(t *testing.T) {
	for _, each := range []struct {
		ours, theirs []string
		fails        bool
	}{
		{[]string{home}, []string{home}, false},
		{[]string{home, "in-addr.arpa."}, []string{home}, false},
		{[]string{home}, []string{home, "in-addr.arpa."}, true},
		{[]string{home}, []string{"."}, true},
		{[]string{"other.local."}, []string{home}, true},
		{[]string{"."}, []string{home}, false},
	} {
		p := made(&world{})
		p.zones = each.ours
		err := p.join(kubernetes.New(each.theirs))
		if (err != nil) != each.fails {
			t.Errorf("%v with %v: %v", each.ours, each.theirs, err)
		}
		if err == nil {
			if m := ask(t, p, acme, "web.beta.svc."+each.theirs[0], dns.TypeA); m.Rcode != dns.RcodeNameError {
				t.Errorf("%v with %v answered %v", each.ours, each.theirs, m)
			}
		}
	}
}

// H06: the zone may be the root.
func TestTheRootAsZone(t *testing.T) {
	p := made(&world{})
	p.zones = []string{"."}
	for name, code := range map[string]int{"web.beta.svc.": dns.RcodeNameError, "web.acme.svc.": dns.RcodeSuccess} {
		if m := ask(t, p, acme, name, dns.TypeA); m.Rcode != code {
			t.Errorf("%s answered %v", name, m)
		}
	}
}
