package tenantry

import (
	"fmt"
	"net/netip"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// The labels of namespaces that name their tenant (src/tenantry/api/marks.py).
const (
	labelTenant    = "tenantry.dev/tenant"
	labelTenantUID = "tenantry.dev/tenant-uid"
	labelZone      = "tenantry.dev/zone"
	labelShared    = "tenantry.dev/shared"
)

// watch returns what starts to keep a directory the same as the cluster, until stop is closed, and what tells whether it
// is that yet.
func watch(client kubernetes.Interface, into *directory) (start func(stop <-chan struct{}), synced func() bool, err error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim))
	parts := []struct {
		informer cache.SharedIndexInformer
		set      func(any)
		unset    func(any)
	}{
		{factory.Core().V1().Namespaces().Informer(), into.onNamespace, into.onNamespaceGone},
		{factory.Core().V1().Pods().Informer(), into.onPod, into.onPodGone},
		{factory.Core().V1().Services().Informer(), into.onService, into.onServiceGone},
	}
	var all []cache.InformerSynced
	for _, part := range parts {
		registered, err := part.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    part.set,
			UpdateFunc: func(_, now any) { part.set(now) },
			DeleteFunc: func(gone any) {
				if unknown, ok := gone.(cache.DeletedFinalStateUnknown); ok {
					gone = unknown.Obj
				}
				part.unset(gone)
			},
		})
		if err != nil {
			return nil, nil, fmt.Errorf("watching the cluster: %w", err)
		}
		// The handler's, not the informer's: that one is in step before we have been told.
		all = append(all, registered.HasSynced)
	}
	return factory.Start, func() bool {
		for _, each := range all {
			if !each() {
				return false
			}
		}
		return true
	}, nil
}

// startup waits until the directory is the same as the cluster, and tells whether it is: as long as the plugin kubernetes
// does, and then CoreDNS goes on and answers what it can.
func startup(synced func() bool) bool {
	end := time.Now().Add(5 * time.Second)
	for !synced() {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

// slim drops of an object what we do not read, for all of the cluster's pods are kept in memory.
func slim(is any) (any, error) {
	switch is := is.(type) {
	case *core.Namespace:
		return &core.Namespace{ObjectMeta: slimMeta(is.ObjectMeta, is.Labels)}, nil
	case *core.Pod:
		return &core.Pod{
			ObjectMeta: slimMeta(is.ObjectMeta, nil),
			Spec:       core.PodSpec{HostNetwork: is.Spec.HostNetwork},
			Status:     core.PodStatus{Phase: is.Status.Phase, PodIP: is.Status.PodIP, PodIPs: is.Status.PodIPs},
		}, nil
	case *core.Service:
		return &core.Service{
			ObjectMeta: slimMeta(is.ObjectMeta, nil),
			Spec:       core.ServiceSpec{ClusterIP: is.Spec.ClusterIP, ClusterIPs: is.Spec.ClusterIPs},
		}, nil
	}
	return is, nil
}

func slimMeta(is meta.ObjectMeta, labels map[string]string) meta.ObjectMeta {
	return meta.ObjectMeta{
		Name: is.Name, Namespace: is.Namespace, UID: is.UID, ResourceVersion: is.ResourceVersion, Labels: labels,
	}
}

func (d *directory) onNamespace(is any) {
	if ns, ok := is.(*core.Namespace); ok {
		found := spaceOf(ns.Labels)
		d.setSpace(ns.Name, &found)
	}
}

func (d *directory) onNamespaceGone(is any) {
	if ns, ok := is.(*core.Namespace); ok {
		d.setSpace(ns.Name, nil)
	}
}

func spaceOf(labels map[string]string) space {
	_, named := labels[labelTenant]
	uid, owned := labels[labelTenantUID]
	return space{
		owned:  named || owned,
		tenant: uid,
		zone:   labels[labelZone],
		shared: labels[labelShared] == "true",
	}
}

func (d *directory) onPod(is any) {
	pod, ok := is.(*core.Pod)
	if !ok {
		return
	}
	var addresses []netip.Addr
	// A pod that has ended keeps its address in its status, while the network gives it to another one.
	if pod.Status.Phase != core.PodSucceeded && pod.Status.Phase != core.PodFailed {
		texts := []string{pod.Status.PodIP}
		for _, each := range pod.Status.PodIPs {
			texts = append(texts, each.IP)
		}
		addresses = parseAll(texts)
	}
	d.setPod(object{pod.Namespace, pod.Name}, pod.Spec.HostNetwork, addresses)
}

func (d *directory) onPodGone(is any) {
	if pod, ok := is.(*core.Pod); ok {
		d.setPod(object{pod.Namespace, pod.Name}, false, nil)
	}
}

func (d *directory) onService(is any) {
	if service, ok := is.(*core.Service); ok {
		addresses := parseAll(append([]string{service.Spec.ClusterIP}, service.Spec.ClusterIPs...))
		d.setService(object{service.Namespace, service.Name}, addresses)
	}
}

func (d *directory) onServiceGone(is any) {
	if service, ok := is.(*core.Service); ok {
		d.setService(object{service.Namespace, service.Name}, nil)
	}
}

// parseAll returns the addresses among texts, each once; "" and "None" are none.
func parseAll(texts []string) []netip.Addr {
	var found []netip.Addr
	seen := map[netip.Addr]bool{}
	for _, text := range texts {
		ip, err := netip.ParseAddr(text)
		if ip = ip.Unmap(); err == nil && !seen[ip] {
			seen[ip] = true
			found = append(found, ip)
		}
	}
	return found
}
