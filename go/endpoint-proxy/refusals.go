package main

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// exchangeTime is how long a handshake, a request and the answer may take, each.
const exchangeTime = 5 * time.Second

// refusal is the Status of Kubernetes that clients show, if they do not try again, and when they may: Retry-After.
type refusal struct {
	body, retryAfter string
}

var (
	notRunning = newRefusal("the control plane does not run yet, try again in a second; if that lasts, the condition Ready"+
		" of its VirtualControlPlane has the reason, such as a lack of quota", "1")
	// client-go tries again only if the answer has the header Retry-After.
	closed = newRefusal("this control plane serves no requests: its tenant is suspended, or its objects move to the host"+
		" cluster (spec.isolation.controlPlane: Shared)", "")
)

func newRefusal(message, retryAfter string) refusal {
	details := ""
	if retryAfter != "" {
		details = `"details":{"retryAfterSeconds":` + retryAfter + `},`
	}
	return refusal{`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
		`"message":"` + message + `","reason":"ServiceUnavailable",` + details + `"code":503}` + "\n", retryAfter}
}

// whyKey is the key of a refusal in the context of a connection.
type whyKey struct{}

// refusals answers requests to control planes that do not run, or are closed, in their place: with their certificates.
// client-go obeys Retry-After up to ten times.
type refusals struct {
	http  http.Server
	queue chan net.Conn
	all   limit
	end   chan struct{}
	once  sync.Once
}

func newRefusals(each time.Duration) *refusals {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	made := &refusals{queue: make(chan net.Conn), all: newLimit(maxRefusedAll), end: make(chan struct{})}
	made.http = http.Server{
		Handler:        http.HandlerFunc(refuseRequest),
		Protocols:      protocols,
		ConnContext:    withRefusal,
		ReadTimeout:    each,
		WriteTimeout:   each,
		MaxHeaderBytes: 64 << 10,
		// Clients choose what it would log.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() { _ = made.http.Serve(made) }()
	return made
}

func withRefusal(ctx context.Context, connection net.Conn) context.Context {
	why := notRunning
	if secured, ok := connection.(*tls.Conn); ok {
		if replayed, ok := secured.NetConn().(*replayedConn); ok {
			why = replayed.why
		}
	}
	return context.WithValue(ctx, whyKey{}, why)
}

func refuseRequest(response http.ResponseWriter, request *http.Request) {
	why, _ := request.Context().Value(whyKey{}).(refusal)
	header := response.Header()
	header.Set("Content-Type", "application/json")
	if why.retryAfter != "" {
		header.Set("Retry-After", why.retryAfter)
	}
	// The next connection may be forwarded.
	header.Set("Connection", "close")
	header.Set("Cache-Control", "no-cache, private")
	response.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(response, why.body)
}

// answer completes TLS with a client, answers one request and closes the connection; it returns after that.
//
// first is what was read from the client before, and why the answer.
func (r *refusals) answer(
	of *share, client *net.TCPConn, first []byte, certified func() (tls.Certificate, error), why refusal,
) {
	// Its own share first: what is above it takes no place of another control plane.
	if !of.refused.take() {
		refuse(client)
		return
	}
	defer of.refused.give()
	if !r.all.take() {
		refuse(client)
		return
	}
	defer r.all.give()
	// Read each time: it is renewed while this process runs.
	certificate, err := certified()
	if err != nil {
		refuse(client)
		return
	}
	settings := &tls.Config{
		Certificates: []tls.Certificate{certificate},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"},
		// Tickets of this process would be worth nothing to the control plane.
		SessionTicketsDisabled: true,
	}
	replayed := &replayedConn{TCPConn: client, first: first, why: why, closed: make(chan struct{})}
	select {
	case r.queue <- tls.Server(replayed, settings):
		<-replayed.closed
	case <-r.end:
		refuse(client)
	}
}

// Accept gives the HTTP server its next connection.
func (r *refusals) Accept() (net.Conn, error) {
	select {
	case next := <-r.queue:
		return next, nil
	case <-r.end:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (r *refusals) Close() error {
	r.once.Do(func() { close(r.end) })
	return nil
}

// Addr has no meaning here.
func (r *refusals) Addr() net.Addr { return loopback(0) }

func (r *refusals) close() {
	r.http.Close()
	r.Close()
}

// replayedConn is a connection of which the first bytes were read already, and that reports its end.
type replayedConn struct {
	*net.TCPConn
	first  []byte
	why    refusal
	once   sync.Once
	closed chan struct{}
}

// Read returns the bytes that were read before first.
func (c *replayedConn) Read(to []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(to, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.TCPConn.Read(to)
}

// Close closes the connection, and reports that once.
func (c *replayedConn) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}
