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

// The marks of mirrored objects (src/tenantry/mirror/profile.py): a label, and annotations with the names inside. The label
// with the namespace is not read, because it has a hash in place of the end of a long name.
const (
	labelOwner          = "vcp.tenantry.dev/owner"
	annotationNamespace = "vcp.tenantry.dev/namespace"
	annotationName      = "vcp.tenantry.dev/name"
)

// watch returns what starts to keep a directory the same as the cluster, until stop is closed, and what reports whether it
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

// startup waits until the directory is the same as the cluster, and reports whether it is: as long as the plugin kubernetes
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
		kept := &core.Pod{
			ObjectMeta: slimCopy(is.ObjectMeta),
			Spec:       core.PodSpec{HostNetwork: is.Spec.HostNetwork},
			Status:     core.PodStatus{Phase: is.Status.Phase, PodIP: is.Status.PodIP, PodIPs: is.Status.PodIPs},
		}
		if kept.Labels != nil {
			kept.Spec.Hostname, kept.Spec.Subdomain = is.Spec.Hostname, is.Spec.Subdomain
		}
		return kept, nil
	case *core.Service:
		return &core.Service{
			ObjectMeta: slimCopy(is.ObjectMeta),
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

// slimCopy keeps the marks of a mirrored object, and of other objects no labels.
func slimCopy(is meta.ObjectMeta) meta.ObjectMeta {
	owner := is.Labels[labelOwner]
	if owner == "" {
		return slimMeta(is, nil)
	}
	kept := slimMeta(is, map[string]string{labelOwner: owner})
	kept.Annotations = map[string]string{
		annotationNamespace: is.Annotations[annotationNamespace], annotationName: is.Annotations[annotationName],
	}
	return kept
}

// innerOf returns the object inside of a control plane that an object of the host stands for, and whether there is one.
//
// An object with an owner and without names is one of the control plane, but stands for none that has a name.
func innerOf(is meta.ObjectMeta) (inner, bool) {
	owner := is.Labels[labelOwner]
	return inner{
		plane{is.Namespace, owner}, is.Annotations[annotationNamespace], is.Annotations[annotationName],
	}, owner != ""
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
	var stands *twin
	if of, ok := innerOf(pod.ObjectMeta); ok {
		stands = &twin{inner: of, hostname: pod.Spec.Hostname, subdomain: pod.Spec.Subdomain}
	}
	d.setPod(object{pod.Namespace, pod.Name}, pod.Spec.HostNetwork, addresses, stands)
}

func (d *directory) onPodGone(is any) {
	if pod, ok := is.(*core.Pod); ok {
		d.setPod(object{pod.Namespace, pod.Name}, false, nil, nil)
	}
}

func (d *directory) onService(is any) {
	if service, ok := is.(*core.Service); ok {
		addresses := parseAll(append([]string{service.Spec.ClusterIP}, service.Spec.ClusterIPs...))
		var stands *inner
		if of, ok := innerOf(service.ObjectMeta); ok && of.namespace != "" && of.name != "" {
			stands = &of
		}
		d.setService(object{service.Namespace, service.Name}, addresses, stands)
	}
}

func (d *directory) onServiceGone(is any) {
	if service, ok := is.(*core.Service); ok {
		d.setService(object{service.Namespace, service.Name}, nil, nil)
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
