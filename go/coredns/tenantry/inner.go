package tenantry

import (
	"slices"
)

// plane is a VirtualControlPlane: its objects on the host are in one namespace and have its uid as a label.
//
// The namespace is a part of the key, because the policy tenantry-marks protects the label in tenants' namespaces only: a
// label with the same uid in another namespace is another plane.
type plane struct{ host, owner string }

// inner is an object inside of a control plane; the namespace itself if it has no name.
type inner struct {
	plane     plane
	namespace string
	name      string
}

// twin is a pod inside of a control plane, of which a pod on the host is the mirror's copy.
type twin struct {
	inner
	hostname  string
	subdomain string // the name of a Service inside
}

// standing has the namespaces that every Kubernetes has, also while the directory knows of no object in them.
//
// A name in them is therefore never one of the host's: "kubernetes.default" is not the API server of the host.
var standing = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// inners maps objects inside of control planes to their copies on the host. The lock of the directory guards it.
type inners struct {
	twins      map[object]*twin // by pod on the host
	copied     map[object]inner // by Service on the host
	copies     map[inner][]string
	namespaces map[inner]int // how many copies are of objects in it
}

func newInners() inners {
	return inners{
		twins:      map[object]*twin{},
		copied:     map[object]inner{},
		copies:     map[inner][]string{},
		namespaces: map[inner]int{},
	}
}

// setTwin keeps which pod inside a pod on the host stands for; nil for none.
func (i *inners) setTwin(pod object, of *twin) {
	if known := i.twins[pod]; known != nil {
		i.count(known.inner, -1)
		delete(i.twins, pod)
	}
	if of != nil {
		i.count(of.inner, 1)
		i.twins[pod] = of
	}
}

// setCopied keeps which Service inside a Service on the host stands for; nil for none.
//
// If several stand for the same one, the first by name answers, so that all servers agree.
func (i *inners) setCopied(service object, of *inner) {
	if known, ok := i.copied[service]; ok {
		i.count(known, -1)
		delete(i.copied, service)
		if left := slices.DeleteFunc(i.copies[known], func(name string) bool { return name == service.name }); len(left) > 0 {
			i.copies[known] = left
		} else {
			delete(i.copies, known)
		}
	}
	if of != nil {
		i.count(*of, 1)
		i.copied[service] = *of
		names := i.copies[*of]
		place, _ := slices.BinarySearch(names, service.name)
		i.copies[*of] = slices.Insert(names, place, service.name)
	}
}

func (i *inners) count(object inner, by int) {
	object.name = ""
	if i.namespaces[object] += by; i.namespaces[object] == 0 {
		delete(i.namespaces, object)
	}
}

// meant returns the namespace inside that a viewer means by the name of a namespace; "" for none.
//
// Kubelet completes names of a pod with the namespace that the pod has on the host, so this one means the viewer's own.
func (i *inners) meant(who viewer, namespace string) string {
	switch {
	case slices.Contains(standing, namespace) || i.namespaces[inner{plane: who.plane, namespace: namespace}] > 0:
		return namespace
	case namespace == who.plane.host:
		return who.namespace
	}
	return ""
}

// isInside returns whether the viewer is a pod of a control plane.
func (v viewer) isInside() bool { return v.plane.owner != "" }

// hasInners returns whether there are any control planes with objects.
func (d *directory) hasInners() bool {
	d.mutex.RLock()
	defer d.mutex.RUnlock()
	return len(d.inners.namespaces) > 0
}

// meant returns the namespace inside that a viewer means by the name of a namespace; "" for none.
func (d *directory) meant(who viewer, namespace string) string {
	d.mutex.RLock()
	defer d.mutex.RUnlock()
	return d.inners.meant(who, namespace)
}

// copyOf returns the Service on the host that stands for what a viewer means by a Service and its namespace.
//
// The namespace of the returned Service inside is empty if the viewer means none.
func (d *directory) copyOf(who viewer, name, namespace string) (of inner, copied object, ok bool) {
	d.mutex.RLock()
	defer d.mutex.RUnlock()
	of = inner{who.plane, d.inners.meant(who, namespace), name}
	if of.namespace == "" {
		return of, object{}, false
	}
	copies := d.inners.copies[of]
	if len(copies) == 0 {
		return of, object{}, false
	}
	return of, object{who.plane.host, copies[0]}, true
}

// original returns the Service inside that a Service on the host stands for, if it is one of the viewer's control plane.
func (d *directory) original(who viewer, service object) (inner, bool) {
	d.mutex.RLock()
	defer d.mutex.RUnlock()
	of, ok := d.inners.copied[service]
	return of, ok && of.plane == who.plane
}

// pod returns the pod inside that a pod on the host stands for; nil unless it is one of the viewer's control plane.
func (d *directory) pod(who viewer, pod object) *twin {
	d.mutex.RLock()
	defer d.mutex.RUnlock()
	if of := d.inners.twins[pod]; of != nil && of.plane == who.plane {
		return of
	}
	return nil
}
