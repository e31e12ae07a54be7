package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// prefix begins the names of the components that are processes of hosted control planes.
const prefix = "hosted@"

// mostOthers is how many processes a control plane has besides the first one.
const mostOthers = 4

// process is process.json, or stopped.json of a control plane that is stopped, as far as it matters here.
type process struct {
	Name     string `json:"name"`
	Port     int    `json:"port"`
	Internal int    `json:"internal"`
	// The internal ports of further processes of the same control plane, 0 for none.
	Others [mostOthers]int `json:"others"`
	// Where the operator reaches any of several processes, also while the control plane is closed; 0 for nowhere.
	Operator int `json:"operator"`
	// Where machines reach any of several processes, and wake none; 0 for nowhere.
	Nodes int `json:"nodes"`
}

// ports are the internal ports of all processes.
func (p process) ports() []int {
	found := []int{p.Internal}
	for _, each := range p.Others {
		if each != 0 {
			found = append(found, each)
		}
	}
	return found
}

// states returns what the supervisor reports of each process: the second one is NAME.2.
func (p process) states(phases map[string]component) replicas {
	var found replicas
	for index, port := range p.ports() {
		name := p.Name
		if index > 0 {
			name = fmt.Sprintf("%s.%d", p.Name, index+1)
		}
		found[index] = phases[name]
		found[index].Address = loopback(port).String()
	}
	return found
}

// source is where the proxy learns what matters of control planes besides their processes.
type source interface {
	// certificate returns what clients expect of the API server; it is renewed while this process runs.
	certificate(uid string) (tls.Certificate, error)
	// isClosed returns whether a control plane is closed to its clients.
	isClosed(uid string) bool
}

// planes are the control planes of a cluster, and who waits for their clients.
type planes struct {
	source  source
	listen  func(port int) (*net.TCPListener, error)
	limits  *limits
	server  *refusals
	clients clients
	// How long a client is held.
	holdTime time.Duration
	// How long a client may take for its ClientHello.
	helloTime time.Duration

	mu      sync.Mutex
	byUID   map[string]*plane
	waiters map[string]map[*waiter]struct{}
	// What apply got last, as far as it matters; a failure to listen makes it nil, so that the next call tries again.
	last []component
	// What scan has found then.
	found map[string]process
}

func newPlanes(from source, listen func(port int) (*net.TCPListener, error)) *planes {
	return &planes{
		source:    from,
		listen:    listen,
		limits:    newLimits(openFiles()),
		server:    newRefusals(exchangeTime),
		holdTime:  holdTime,
		helloTime: helloTime,
		clients:   clients{byUID: map[string]map[*net.TCPConn]struct{}{}},
		byUID:     map[string]*plane{},
		waiters:   map[string]map[*waiter]struct{}{},
	}
}

// openFiles returns how many descriptors this process may have. Go raises the limit to the highest allowed.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<20))
}

// apply brings the listeners and the phases in line with the folder and with what the supervisor reports.
func (a *planes) apply(from folder, states []component) {
	hosted := slices.DeleteFunc(slices.Clone(states), func(each component) bool {
		return len(each.Name) <= len(prefix) || each.Name[:len(prefix)] != prefix
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	found := from.scan()
	// Control planes that are stopped come and go without a component.
	if a.last != nil && slices.Equal(a.last, hosted) && maps.Equal(a.found, found) {
		return
	}
	phases := map[string]component{}
	for _, each := range hosted {
		phases[each.Name[len(prefix):]] = each
	}
	a.last, a.found = hosted, found
	if !a.bring(found, func(uid string) replicas { return found[uid].states(phases) }) {
		a.last = nil
	}
}

// bring listens for the control planes that there are, and returns whether it could. The caller holds the lock.
func (a *planes) bring(found map[string]process, states func(uid string) replicas) bool {
	for uid, known := range a.byUID {
		if found[uid] != known.process {
			known.close()
			delete(a.byUID, uid)
		}
	}
	a.limits.divide(len(found))
	isDone := true
	for uid, each := range found {
		known := a.byUID[uid]
		if known == nil {
			known = newPlane(a, uid, each)
			if err := known.listen(); err != nil {
				// As long as a process of an earlier version listens there itself; its end changes the states.
				log.Printf("%s: %v", each.Name, err)
				isDone = false
				continue
			}
			a.byUID[uid] = known
		}
		known.follow(states(uid))
	}
	a.announce()
	return isDone
}

// folder is that of a local cluster.
type folder string

// scan reads which control planes there are.
func (f folder) scan() map[string]process {
	found := map[string]process{}
	// In this order: one that is stopped or started meanwhile must be found under one of its names.
	for _, name := range []string{"process.json", "stopped.json", "process.json"} {
		files, _ := filepath.Glob(filepath.Join(string(f), "hosted", "*", name))
		for _, file := range files {
			var each process
			content, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(content, &each)
			}
			// One that is being removed, or whose process listens at its port itself.
			if err != nil || each.Internal == 0 {
				continue
			}
			found[filepath.Base(filepath.Dir(file))] = each
		}
	}
	return found
}

func (f folder) certificate(uid string) (tls.Certificate, error) {
	pki := filepath.Join(string(f), "hosted", uid, "pki")
	return tls.LoadX509KeyPair(filepath.Join(pki, "server.crt"), filepath.Join(pki, "server.key"))
}

// isClosed looks for the file; one that cannot be looked for closes the control plane, too.
func (f folder) isClosed(uid string) bool {
	_, err := os.Lstat(filepath.Join(string(f), "hosted", uid, closedFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// close ends all listeners and all connections that are held.
func (a *planes) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, each := range a.byUID {
		each.close()
	}
	a.server.close()
}

// announce answers those who wait for a control plane to be listened for. The caller holds the lock.
func (a *planes) announce() {
	for uid := range a.byUID {
		for each := range a.waiters[uid] {
			if each.what == untilListening {
				each.answer()
			}
		}
	}
}

// await registers a waiter, which is answered at once if what it waits for is so already.
func (a *planes) await(uid string, who *waiter) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiters[uid]) >= maxWaiters {
		return fmt.Errorf("more than %d wait for the clients of one control plane", maxWaiters)
	}
	if a.waiters[uid] == nil {
		a.waiters[uid] = map[*waiter]struct{}{}
	}
	a.waiters[uid][who] = struct{}{}
	if known := a.byUID[uid]; known != nil && (who.what == untilListening || known.registered()) {
		who.answer()
	}
	return nil
}

func (a *planes) forget(uid string, who *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiters[uid], who)
	if len(a.waiters[uid]) == 0 {
		delete(a.waiters, uid)
	}
}

// knock answers those who wait for a client of a control plane; it returns whether there are any.
func (a *planes) knock(uid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := false
	for each := range a.waiters[uid] {
		if each.what == untilClient {
			each.answer()
			found = true
		}
	}
	return found
}

// listenHere listens at a port of this machine, which no other machine reaches.
func listenHere(port int) (*net.TCPListener, error) {
	return net.ListenTCP("tcp4", loopback(port))
}

// loopback is the address of a port of this machine.
func loopback(port int) *net.TCPAddr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
}
