package main

import (
	"crypto/tls"
	"log"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// holdTime is how long a client is held: kubectl gives up after ten seconds without a handshake.
	holdTime = 4 * time.Second
	// wakeTime is how long after a knock the process may be expected: the operator starts it meanwhile.
	wakeTime = 30 * time.Second
	// settleTime is how long after the end of the process the operator may not wait for clients yet.
	settleTime = time.Second
	dialTime   = 2 * time.Second
)

// replicas is what the supervisor reports of the processes of one control plane.
type replicas [1 + mostOthers]component

// isReady returns whether one of them is ready.
func (r replicas) isReady() bool {
	return slices.ContainsFunc(r[:], func(each component) bool { return each.Phase == ready })
}

// isStopped returns whether none of them runs, or will soon.
func (r replicas) isStopped() bool {
	return !slices.ContainsFunc(r[:], func(each component) bool { return each.Phase != stopped && each.Phase != "" })
}

// isKnown returns whether the supervisor knows one of them.
func (r replicas) isKnown() bool {
	return slices.ContainsFunc(r[:], func(each component) bool { return each.Phase != "" })
}

// many is the number of processes that can be reached.
func (r replicas) many() int {
	found := 0
	for _, each := range r {
		if each.Address != "" {
			found++
		}
	}
	return found
}

// plane is one control plane: its listeners, and which of its processes are ready.
type plane struct {
	process
	uid string
	all *planes

	listener *net.TCPListener
	// Of the operator, nil for none.
	operator *net.TCPListener
	// Of machines, nil for none.
	nodes *net.TCPListener
	share *share

	mu    sync.Mutex
	state replicas
	// Where the search for a process that answers begins next: clients are spread over them.
	next int
	// Closed at each change of the state, and replaced by a new one.
	changed chan struct{}
	gone    bool
	// Clients that are held.
	knocking  int
	stoppedAt time.Time
	knockedAt time.Time
}

func newPlane(all *planes, uid string, from process) *plane {
	return &plane{process: from, uid: uid, all: all, share: all.limits.share(), changed: make(chan struct{})}
}

// listen accepts connections at the public port and at that of the operator, each in a goroutine of its own.
func (p *plane) listen() error {
	listener, err := p.all.listen(p.Port)
	if err != nil {
		return err
	}
	if p.Operator != 0 {
		if p.operator, err = p.all.listen(p.Operator); err != nil {
			listener.Close()
			return err
		}
		go p.accept(p.operator, &p.share.operator, &p.share.operatorNewcomers, p.serve)
	}
	if p.Nodes != 0 {
		if p.nodes, err = p.all.listen(p.Nodes); err != nil {
			listener.Close()
			if p.operator != nil {
				p.operator.Close()
			}
			return err
		}
		go p.accept(p.nodes, &p.share.nodes, &p.share.nodesNewcomers, p.pass)
	}
	p.listener = listener
	log.Printf("%s: listening at %s", p.Name, listener.Addr())
	go p.accept(p.listener, &p.share.open, &p.share.newcomers, p.admit)
	return nil
}

// accept serves the clients of a listener, within a limit: those that begin with a ClientHello.
func (p *plane) accept(
	listener *net.TCPListener, open *limit, first *newcomers, serve func(*net.TCPConn, []byte),
) {
	_ = acceptAll(p.Name, listener.AcceptTCP, func(client *net.TCPConn) {
		first.add(client)
		go func() {
			hello, err := readHello(client, p.all.helloTime)
			first.remove(client)
			p.greet(client, hello, err, open, serve)
		}()
	})
}

// greet serves a client whose ClientHello is whole, if there is room.
func (p *plane) greet(client *net.TCPConn, first []byte, err error, open *limit, serve func(*net.TCPConn, []byte)) {
	if err != nil || !open.take() {
		refuse(client)
		return
	}
	defer open.give()
	peer := peerOf(client)
	// One address leaves half of them to others.
	if !p.share.peers.take(peer, max(open.most.Load()/2, 1)) {
		refuse(client)
		return
	}
	defer p.share.peers.give(peer)
	serve(client, first)
}

// admit serves a user or a pod, unless the control plane is closed.
func (p *plane) admit(client *net.TCPConn, first []byte) {
	p.all.clients.add(p.uid, client)
	defer p.all.clients.remove(p.uid, client)
	// After the client was added to the others: cut finds those that came before the control plane was closed.
	if p.all.source.isClosed(p.uid) {
		p.answer(client, first, closed)
		return
	}
	p.serve(client, first)
}

// pass forwards the connection of a machine, or ends it: machines connect again and again, and must wake nothing.
func (p *plane) pass(client *net.TCPConn, first []byte) {
	server := p.dialReady()
	if server == nil {
		refuse(client)
		return
	}
	forward(client, server, first)
}

// serve forwards a connection, holds it first, or refuses it.
func (p *plane) serve(client *net.TCPConn, first []byte) {
	server := p.dialReady()
	isRefused := false
	if server == nil {
		server, isRefused = p.hold(client)
	}
	switch {
	case server != nil:
		forward(client, server, first)
	case isRefused:
		refuse(client)
	default:
		p.answer(client, first, notRunning)
	}
}

func (p *plane) answer(client *net.TCPConn, first []byte, why refusal) {
	certificate := func() (tls.Certificate, error) { return p.all.source.certificate(p.uid) }
	p.all.server.answer(p.share, client, first, certificate, why)
}

// dialReady connects to a process that is ready, to another one if it does not answer; nil if none does.
func (p *plane) dialReady() *net.TCPConn {
	p.mu.Lock()
	state, first, gone := p.state, p.next, p.gone
	many := state.many()
	p.next = (p.next + 1) % max(many, 1)
	p.mu.Unlock()
	if gone {
		return nil
	}
	dialer := net.Dialer{Timeout: dialTime}
	for index := range many {
		index = (first + index) % many
		if state[index].Phase != ready {
			continue
		}
		found, err := dialer.Dial("tcp", state[index].Address)
		if err == nil {
			return found.(*net.TCPConn)
		}
		// It has just ended: the supervisor will report that.
	}
	return nil
}

// hold waits until the process is ready, or the client has ended, which takes no place of others then. It returns a
// connection to the process; nil if the client is to be refused, with whether that is without an answer.
func (p *plane) hold(client *net.TCPConn) (*net.TCPConn, bool) {
	if !p.share.held.take() {
		return nil, true
	}
	defer p.share.held.give()
	limit := time.NewTimer(p.all.holdTime)
	defer limit.Stop()
	ended, stop := untilEnded(client)
	defer stop()
	p.startKnocking()
	defer p.endKnocking()
	for {
		p.mu.Lock()
		changed, gone := p.changed, p.gone
		p.mu.Unlock()
		if gone {
			return nil, true
		}
		if server := p.dialReady(); server != nil {
			return server, false
		}
		if !p.mayWake() {
			return nil, false
		}
		select {
		case <-changed:
		case <-ended:
			return nil, true
		case <-limit.C:
			return nil, false
		}
	}
}

// startKnocking tells those who wait that a client is held.
func (p *plane) startKnocking() {
	p.mu.Lock()
	p.knocking++
	p.mu.Unlock()
	if p.all.knock(p.uid) {
		p.noteKnock()
	}
}

func (p *plane) endKnocking() {
	p.mu.Lock()
	p.knocking--
	p.mu.Unlock()
}

func (p *plane) noteKnock() {
	p.mu.Lock()
	p.knockedAt = time.Now()
	p.mu.Unlock()
}

// registered returns whether a new waiter for clients learns at once that there is one.
func (p *plane) registered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.isReady() || p.knocking == 0 {
		return false
	}
	p.knockedAt = time.Now()
	return true
}

// mayWake returns whether the process will run soon: it starts, or was stopped by an operator that may still come to
// wait for clients, or that has heard of one.
func (p *plane) mayWake() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.state.isStopped() {
		return true
	}
	return time.Since(p.knockedAt) < wakeTime || time.Since(p.stoppedAt) < settleTime
}

// follow takes over what the supervisor reports of the process.
func (p *plane) follow(state replicas) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == state {
		return
	}
	if state.isReady() {
		// The next end of the process needs a new knock.
		p.knockedAt = time.Time{}
	}
	if state.isKnown() && state.isStopped() && p.state.isKnown() {
		p.stoppedAt = time.Now()
	}
	p.state = state
	p.tell()
}

// close ends the listeners, and refuses clients that are held. The others end with the process.
func (p *plane) close() {
	p.listener.Close()
	if p.operator != nil {
		p.operator.Close()
	}
	if p.nodes != nil {
		p.nodes.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	p.tell()
}

// tell wakes all who follow the state. The caller holds the lock.
func (p *plane) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// refuse closes a connection at once: with a reset, because it leaves nothing behind on this machine.
func refuse(client *net.TCPConn) {
	_ = client.SetLinger(0)
	client.Close()
}
