package tenantry

import (
	"net/netip"
	"slices"
	"sync"
)

// space is the part of a namespace's labels that decides which clients see its names.
type space struct {
	owned  bool   // it belongs to a tenant
	tenant string // the tenant's uid; "" belongs to no tenant, even if owned
	zone   string // its zone within the tenant
	shared bool   // every client sees its names, unless it belongs to a tenant
}

// reach is which names a client may see.
type reach int

const (
	// strangers see no tenant's names: addresses of nodes, and addresses that the plugin does not know.
	strangers reach = iota
	// tenants see the names of their own zone and shared ones.
	tenants
	// everything is seen by pods outside of all tenants.
	everything
)

// viewer is the client that asks.
type viewer struct {
	reach     reach
	tenant    string
	zone      string
	plane     plane  // the control plane that it is a pod of; without an owner for none
	namespace string // its namespace there
}

// object names a pod or a Service.
type object struct{ namespace, name string }

// holder is a pod that has an address.
type holder struct {
	pod  object
	node bool // the address is its node's
	of   *twin
}

// directory maps addresses to pods and Services, and namespaces to tenants. Each lookup takes constant time.
type directory struct {
	mutex     sync.RWMutex
	spaces    map[string]space
	pods      map[object][]netip.Addr
	holders   map[netip.Addr][]holder
	services  map[object][]netip.Addr
	addresses map[netip.Addr]object // of Services
	inners    inners
	waiting   map[netip.Addr]*expected
	waiters   int
}

func newDirectory() *directory {
	return &directory{
		spaces:    map[string]space{},
		pods:      map[object][]netip.Addr{},
		holders:   map[netip.Addr][]holder{},
		services:  map[object][]netip.Addr{},
		addresses: map[netip.Addr]object{},
		inners:    newInners(),
		waiting:   map[netip.Addr]*expected{},
	}
}

// setSpace keeps what a namespace is, or forgets it.
func (d *directory) setSpace(name string, is *space) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if is == nil {
		delete(d.spaces, name)
	} else {
		d.spaces[name] = *is
	}
}

// setPod keeps which addresses a pod has; none where it is gone or has ended, for its addresses may be another's then.
//
// of is the pod inside of a control plane that it stands for; nil for none, and if it is gone.
func (d *directory) setPod(pod object, node bool, addresses []netip.Addr, of *twin) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.inners.setTwin(pod, of)
	for _, ip := range d.pods[pod] {
		left := slices.DeleteFunc(slices.Clone(d.holders[ip]), func(each holder) bool { return each.pod == pod })
		if len(left) > 0 {
			d.holders[ip] = left
		} else {
			delete(d.holders, ip)
		}
	}
	delete(d.pods, pod)
	for _, ip := range addresses {
		d.holders[ip] = append(d.holders[ip], holder{pod, node, of})
		d.announce(ip)
	}
	if len(addresses) > 0 {
		d.pods[pod] = addresses
	}
}

// setService keeps which addresses a Service has, and which Service inside of a control plane it stands for; nil for none.
func (d *directory) setService(service object, addresses []netip.Addr, of *inner) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.inners.setCopied(service, of)
	for _, ip := range d.services[service] {
		if d.addresses[ip] == service {
			delete(d.addresses, ip)
		}
	}
	delete(d.services, service)
	for _, ip := range addresses {
		d.addresses[ip] = service
	}
	if len(addresses) > 0 {
		d.services[service] = addresses
	}
}

// viewer returns the client that has an address, and whether it is known.
//
// If pods of several tenants or control planes have it, as happens until the watch reports that one has ended, it belongs
// to none of them.
func (d *directory) viewer(ip netip.Addr) (viewer, bool) {
	d.mutex.RLock()
	defer d.mutex.RUnlock()
	holders := d.holders[ip]
	if len(holders) == 0 {
		return viewer{}, false
	}
	var found viewer
	for i, each := range holders {
		if each.node {
			// Masqueraded connections of any pod of the node come from it, too.
			return viewer{}, true
		}
		is, ok := d.spaces[each.pod.namespace]
		if !ok {
			return viewer{}, false
		}
		this := viewer{reach: everything}
		if is.owned {
			this = viewer{reach: tenants, tenant: is.tenant, zone: is.zone}
		}
		if each.of != nil {
			// Outside of tenants, too: a pod of a control plane does not see the host.
			this.reach, this.plane, this.namespace = tenants, each.of.plane, each.of.namespace
		}
		if i > 0 && this != found {
			return viewer{}, true
		}
		found = this
	}
	return found, true
}

// sees reports whether a viewer may know of a name. What is in no namespace that we know is treated as what must not be
// known, so that the two cannot be told apart.
func (d *directory) sees(who viewer, what subject) bool {
	if who.reach == everything || what.namespace == "" {
		return true
	}
	d.mutex.RLock()
	is, ok := d.spaces[what.namespace]
	d.mutex.RUnlock()
	switch {
	case !ok:
		return false
	case who.isInside():
		// Names inside are not looked up here.
		return is.shared && !is.owned && !slices.Contains(standing, what.namespace)
	case is.owned:
		return who.reach == tenants && is.tenant != "" && is.tenant == who.tenant && is.zone == who.zone
	case who.reach == strangers:
		return true
	default:
		return is.shared || what == apiserver
	}
}

// apiserver is the Service that every pod finds in its environment variables.
var apiserver = subject{namespace: "default", service: "kubernetes"}

// seesAddress returns whether a viewer may know the holder of an address.
//
// All other local addresses get the same answer: one that shows that an address is in use would be a leak.
func (d *directory) seesAddress(who viewer, ip netip.Addr) bool {
	if who.reach == everything {
		return true
	}
	d.mutex.RLock()
	service, isService := d.addresses[ip]
	holders := d.holders[ip]
	d.mutex.RUnlock()
	if isService {
		return d.sees(who, subject{service.namespace, service.name})
	}
	if len(holders) == 0 {
		return !isLocal(ip)
	}
	for _, each := range holders {
		if each.node && who.reach == tenants || !d.sees(who, subject{namespace: each.pod.namespace}) {
			return false
		}
	}
	return true
}

// maxWaiters is how many questions may wait for the watch to report their client; further ones are answered at once.
const maxWaiters = 256

// expected is a pod whose address asked a question before the watch reported the pod.
type expected struct {
	known chan struct{} // closed then
	by    int           // how many questions wait for it
}

// wait returns a channel that is closed when a pod gets an address, and what to call in the end; nil where too many wait.
func (d *directory) wait(ip netip.Addr) (known <-chan struct{}, done func()) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.waiters >= maxWaiters {
		return nil, nil
	}
	awaited := d.waiting[ip]
	if awaited == nil {
		awaited = &expected{known: make(chan struct{})}
		d.waiting[ip] = awaited
		if len(d.holders[ip]) > 0 {
			// Word came since the caller looked.
			d.announce(ip)
		}
	}
	d.waiters++
	awaited.by++
	return awaited.known, func() {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		d.waiters--
		awaited.by--
		if awaited.by == 0 && d.waiting[ip] == awaited {
			delete(d.waiting, ip)
		}
	}
}

// announce wakes all questions that wait for an address. The caller holds the lock.
func (d *directory) announce(ip netip.Addr) {
	if awaited := d.waiting[ip]; awaited != nil {
		close(awaited.known)
		delete(d.waiting, ip)
	}
}
