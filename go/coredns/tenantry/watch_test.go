package tenantry

import (
	"net/netip"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// H06: the labels of a namespace decide; one that looks like a tenant's is seen by no other tenant.
func TestLabels(t *testing.T) {
	for _, each := range []struct {
		labels map[string]string
		is     space
	}{
		{nil, space{}},
		{map[string]string{"tenantry.dev/shared": "true"}, space{shared: true}},
		{map[string]string{"tenantry.dev/shared": "yes"}, space{}},
		{map[string]string{"tenantry.dev/tenant": "acme"}, space{owned: true}},
		{
			map[string]string{"tenantry.dev/tenant-uid": "u", "tenantry.dev/zone": "z"},
			space{owned: true, tenant: "u", zone: "z"},
		},
	} {
		if is := spaceOf(each.labels); is != each.is {
			t.Errorf("%v: %v, not %v", each.labels, is, each.is)
		}
	}
}

// H06: a pod has its addresses from the moment that its node tells of them until it has ended, or is gone.
func TestPods(t *testing.T) {
	d := newDirectory()
	d.onNamespace(&core.Namespace{ObjectMeta: meta.ObjectMeta{
		Name: "acme", Labels: map[string]string{"tenantry.dev/tenant-uid": "u"},
	}})
	check := func(text string, known bool, reach reach) {
		t.Helper()
		if who, is := d.viewer(netip.MustParseAddr(text)); is != known || who.reach != reach {
			t.Errorf("%s is %v, %v", text, who, is)
		}
	}
	pod := func(phase core.PodPhase, node bool, addresses ...string) *core.Pod {
		made := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "acme", Name: "p"}}
		made.Spec.HostNetwork = node
		made.Status.Phase = phase
		for _, ip := range addresses {
			made.Status.PodIP = addresses[0]
			made.Status.PodIPs = append(made.Status.PodIPs, core.PodIP{IP: ip})
		}
		slimmed, err := slim(made)
		if err != nil {
			t.Fatal(err)
		}
		return slimmed.(*core.Pod)
	}
	d.onPod(pod(core.PodPending, false))
	check("10.0.0.1", false, strangers)
	d.onPod(pod(core.PodRunning, false, "10.0.0.1", "2001:db8::1"))
	check("10.0.0.1", true, tenants)
	check("2001:db8::1", true, tenants)
	d.onPod(pod(core.PodRunning, true, "10.0.0.2"))
	check("10.0.0.1", false, strangers)
	check("10.0.0.2", true, strangers)
	for _, phase := range []core.PodPhase{core.PodSucceeded, core.PodFailed} {
		d.onPod(pod(core.PodRunning, false, "10.0.0.1"))
		check("10.0.0.1", true, tenants)
		d.onPod(pod(phase, false, "10.0.0.1"))
		check("10.0.0.1", false, strangers)
	}
	d.onPod(pod(core.PodRunning, false, "10.0.0.1"))
	d.onNamespaceGone(&core.Namespace{ObjectMeta: meta.ObjectMeta{Name: "acme"}})
	check("10.0.0.1", false, strangers)
	d.onPodGone(pod(core.PodRunning, false, "10.0.0.1"))
	if len(d.pods)+len(d.holders)+len(d.spaces) > 0 {
		t.Errorf("left: %v %v %v", d.pods, d.holders, d.spaces)
	}
}

// A Service without an address of its own has none, and one that is gone leaves none.
func TestServices(t *testing.T) {
	d := newDirectory()
	service := &core.Service{ObjectMeta: meta.ObjectMeta{Namespace: "acme", Name: "web"}}
	for _, ip := range []string{"", "None"} {
		service.Spec.ClusterIP, service.Spec.ClusterIPs = ip, []string{ip}
		d.onService(service)
		if len(d.addresses) > 0 {
			t.Errorf("%q is an address", ip)
		}
	}
	service.Spec.ClusterIP, service.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1", "2001:db8::1"}
	d.onService(service)
	if len(d.addresses) != 2 {
		t.Errorf("addresses: %v", d.addresses)
	}
	d.onServiceGone(service)
	if len(d.addresses)+len(d.services) > 0 {
		t.Errorf("left: %v %v", d.addresses, d.services)
	}
}
