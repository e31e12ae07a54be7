package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// toldPlane is what an operator reports of a control plane whose processes are Pods. Each report replaces the last one.
type toldPlane struct {
	UID  string `json:"uid"`
	Name string `json:"name"`
	// Where its clients come in.
	Port int `json:"port"`
	// Where machines come in, and wake no Pod; 0 for nowhere.
	Nodes int `json:"nodes"`
	// Stopped while it sleeps, and Ready or another one otherwise.
	Phase phase `json:"phase"`
	// Its Pods that are ready, as HOST:PORT.
	Addresses []string `json:"addresses"`
	// Whether its tenant is suspended, or its objects move to the host.
	Closed bool `json:"closed"`
	// What clients expect of the API server, in PEM.
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// ports are those at which the proxy listens for it.
func (p toldPlane) ports() []int {
	if p.Nodes == 0 {
		return []int{p.Port}
	}
	return []int{p.Port, p.Nodes}
}

// told has what operators have reported. It is kept while none is connected; a new proxy has nothing, and listens nowhere.
type told struct {
	mu    sync.RWMutex
	byUID map[string]report
}

// report is one report, with the certificate that was read.
type report struct {
	toldPlane
	pair tls.Certificate
}

func newTold() *told {
	return &told{byUID: map[string]report{}}
}

func (t *told) certificate(uid string) (tls.Certificate, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	found, ok := t.byUID[uid]
	if !ok {
		return tls.Certificate{}, errors.New("no operator has reported this control plane")
	}
	return found.pair, nil
}

// isClosed returns whether a control plane is closed; one that is not known is.
func (t *told) isClosed(uid string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	found, ok := t.byUID[uid]
	return !ok || found.Closed
}

// tell takes a report over; what it closes has no connection of a client any more when it returns.
func (t *told) tell(all *planes, what toldPlane) error {
	pair, err := tls.X509KeyPair([]byte(what.Certificate), []byte(what.Key))
	if err != nil {
		return err
	}
	if what.UID == "" || what.Port <= 0 || what.Port > 65535 || what.Phase == "" || len(what.Addresses) > 1+mostOthers {
		return fmt.Errorf("the report of %q must have a uid, a port, a phase and at most %d addresses", what.UID, 1+mostOthers)
	}
	if what.Nodes < 0 || what.Nodes > 65535 || what.Nodes == what.Port {
		return fmt.Errorf("the report of %q must have another port for machines, or 0", what.UID)
	}
	for _, each := range what.Addresses {
		if _, _, err := net.SplitHostPort(each); err != nil {
			return err
		}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	t.mu.Lock()
	t.take(what)
	t.byUID[what.UID] = report{what, pair}
	t.mu.Unlock()
	t.bring(all)
	if what.Closed {
		all.clients.cut(what.UID)
	}
	if all.byUID[what.UID] == nil {
		return fmt.Errorf("port %d cannot be listened at", what.Port)
	}
	return nil
}

// take removes from older reports what a new one has: of control planes that were deleted, or whose Pods were, while no
// operator could report that. Otherwise, clients of another control plane would reach a Pod, although its own clients are
// refused. The caller holds the lock.
func (t *told) take(what toldPlane) {
	for uid, other := range t.byUID {
		if uid == what.UID {
			continue
		}
		if slices.ContainsFunc(what.ports(), func(port int) bool { return slices.Contains(other.ports(), port) }) {
			delete(t.byUID, uid)
			continue
		}
		isTaken := func(address string) bool { return slices.Contains(what.Addresses, address) }
		if slices.ContainsFunc(other.Addresses, isTaken) {
			other.Addresses = slices.DeleteFunc(slices.Clone(other.Addresses), isTaken)
			t.byUID[uid] = other
		}
	}
}

// forget ends a control plane that is deleted.
func (t *told) forget(all *planes, uid string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	t.mu.Lock()
	delete(t.byUID, uid)
	t.mu.Unlock()
	t.bring(all)
	all.clients.cut(uid)
}

// bring listens for the control planes that were reported. The caller holds the lock of the planes.
func (t *told) bring(all *planes) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	found := map[string]process{}
	for uid, each := range t.byUID {
		found[uid] = process{Name: each.Name, Port: each.Port, Nodes: each.Nodes}
	}
	all.bring(found, func(uid string) replicas { return t.byUID[uid].states() })
}

func (r report) states() replicas {
	var found replicas
	found[0].Phase = r.Phase
	for index, address := range r.Addresses {
		found[index] = component{Phase: r.Phase, Address: address}
	}
	return found
}
