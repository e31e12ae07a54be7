package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// mostOpen is the most connections at one time of each listener.
	mostOpen = 512
	// mostParked is the most connections that wait for a process, for each socket.
	mostParked = 64
	// mostName is the longest name of a socket, with its line feed.
	mostName          = 64
	introduction      = 10 * time.Second
	halfClosed        = 60 * time.Second
	begin        byte = '!'
)

// serve handles each connection in a goroutine, at most `most` at a time; further ones are closed at once.
func serve(listener net.Listener, most int, handle func(net.Conn)) error {
	slots := make(chan struct{}, most)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED) {
				// Connections end, and with them their files.
				time.Sleep(100 * time.Millisecond)
				continue
			}
			return err
		}
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				defer conn.Close()
				handle(conn)
			}()
		default:
			conn.Close()
		}
	}
}

// pass forwards a client to the API server, whose TLS is not ended here.
func pass(client net.Conn, server string) {
	upstream, err := net.DialTimeout("tcp", server, introduction)
	if err != nil {
		return
	}
	defer upstream.Close()
	splice(client, upstream)
}

// A pool has the connections that the operator has parked for one socket.
type pool struct {
	wait   time.Duration
	mutex  sync.Mutex
	parked []*parkedConn
	// Has an element for each process that waits.
	waiting []chan *parkedConn
}

// A parkedConn is one of these connections; `taken` gets the process that it is handed over to.
type parkedConn struct {
	conn  *tls.Conn
	taken chan net.Conn
	ended chan struct{}
}

func newPool(wait time.Duration) *pool { return &pool{wait: wait} }

// park serves a connection of the operator to its end: it waits for a process, or leads to a socket that is reached.
func park(conn *tls.Conn, pools map[string]*pool, reached map[string]string) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(introduction))
	// The operator sends nothing after the name until it gets the byte `begin`.
	reader := bufio.NewReaderSize(conn, mostName)
	line, err := reader.ReadSlice('\n')
	if err != nil {
		if !errors.Is(err, io.EOF) {
			log.Printf("a connection is not the operator's: %v", err)
		}
		return
	}
	name := strings.TrimSuffix(string(line), "\n")
	if path := reached[name]; path != "" {
		reach(conn, reader, path)
		return
	}
	found := pools[name]
	if found == nil {
		log.Print("the operator names no socket of this Pod")
		return
	}
	conn.SetDeadline(time.Time{})
	own := &parkedConn{conn: conn, taken: make(chan net.Conn, 1), ended: make(chan struct{})}
	defer close(own.ended)
	if !found.add(own) {
		return
	}
	// It returns when the operator leaves, or answers the process that it has been connected to.
	_, err = reader.Peek(1)
	if found.drop(own) {
		return
	}
	process := <-own.taken
	// The end of the operator's direction ends both: it has no half close.
	defer process.Close()
	if err == nil {
		io.Copy(process, reader)
	}
}

// reach connects the operator to a socket of the process. The end of either direction ends both.
func reach(conn *tls.Conn, from io.Reader, path string) {
	process, err := net.DialTimeout("unix", path, introduction)
	if err != nil {
		log.Printf("the process does not listen: %v", err)
		return
	}
	defer process.Close()
	if _, err := conn.Write([]byte{begin}); err != nil {
		return
	}
	conn.SetDeadline(time.Time{})
	go func() {
		io.Copy(process, from)
		process.Close()
	}()
	io.Copy(conn, process)
}

// handOver serves a process that has connected to a socket, to its end.
func (p *pool) handOver(process net.Conn) {
	own := p.take()
	if own == nil {
		log.Print("a process is rejected: the operator is not connected")
		return
	}
	own.taken <- process
	if _, err := own.conn.Write([]byte{begin}); err == nil {
		io.Copy(own.conn, process)
		own.conn.CloseWrite()
	}
	own.conn.SetReadDeadline(time.Now().Add(halfClosed))
	<-own.ended
}

// add parks a connection, or gives it to a process that waits; it returns false if there are too many.
func (p *pool) add(own *parkedConn) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.waiting) > 0 {
		p.waiting[0] <- own
		p.waiting = p.waiting[1:]
		return true
	}
	if len(p.parked) >= mostParked {
		return false
	}
	p.parked = append(p.parked, own)
	return true
}

// drop removes a parked connection, and returns false if a process has it.
func (p *pool) drop(own *parkedConn) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for i, each := range p.parked {
		if each == own {
			p.parked = append(p.parked[:i], p.parked[i+1:]...)
			return true
		}
	}
	return false
}

// take returns a parked connection, the one that was parked last first: the others may be of an operator that has left.
func (p *pool) take() *parkedConn {
	p.mutex.Lock()
	if last := len(p.parked) - 1; last >= 0 {
		own := p.parked[last]
		p.parked = p.parked[:last]
		p.mutex.Unlock()
		return own
	}
	turn := make(chan *parkedConn, 1)
	p.waiting = append(p.waiting, turn)
	p.mutex.Unlock()
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	select {
	case own := <-turn:
		return own
	case <-timer.C:
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for i, each := range p.waiting {
		if each == turn {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			return nil
		}
	}
	// It came in the last moment.
	return <-turn
}

// splice forwards bytes both ways until both directions have ended.
func splice(left, right net.Conn) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		forward(left, right)
	}()
	forward(right, left)
	<-ended
}

// forward passes on the end of a direction as a half close; then the other one may be silent for a limited time.
func forward(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); err != nil || !ok || half.CloseWrite() != nil {
		to.Close()
		from.Close()
		return
	}
	to.SetReadDeadline(time.Now().Add(halfClosed))
}
