package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait of a test; nothing depends on how long it is.
const patience = 20 * time.Second

// cluster is a folder of a cluster, a supervisor of which only the watch is there, and the proxy.
type cluster struct {
	t      *testing.T
	folder string
	all    *planes
	trust  *x509.CertPool

	mu       sync.Mutex
	changed  *sync.Cond
	states   []component
	version  int
	closed   bool
	watchers []net.Conn
}

// newCluster starts a proxy with the control planes that exist.
func newCluster(t *testing.T, holdTime time.Duration, first func(*cluster)) *cluster {
	t.Helper()
	// Short: paths of Unix sockets are.
	made, err := os.MkdirTemp("", "ep-")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(made) })
	check(t, os.Mkdir(filepath.Join(made, "hosted"), 0o700))
	c := &cluster{t: t, folder: made, trust: x509.NewCertPool()}
	c.changed = sync.NewCond(&c.mu)
	supervisor, err := net.Listen("unix", filepath.Join(made, "control.sock"))
	check(t, err)
	go func() {
		for {
			connection, err := supervisor.Accept()
			if err != nil {
				return
			}
			go c.report(connection)
		}
	}()
	if first != nil {
		first(c)
	}
	at := folder(made)
	c.all = newPlanes(at, listenHere)
	c.all.holdTime = holdTime
	knocks, err := listenForWaiters(made, c.all)
	check(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = follow(ctx, made, func(states []component) { c.all.apply(at, states) })
	}()
	t.Cleanup(func() {
		stop()
		<-done
		c.all.close()
		knocks.Close()
		supervisor.Close()
		c.mu.Lock()
		c.closed = true
		c.changed.Broadcast()
		c.mu.Unlock()
	})
	return c
}

// report sends the states to one watcher, as the supervisor does: now, and after each change.
func (c *cluster) report(connection net.Conn) {
	defer connection.Close()
	if line, err := bufio.NewReader(connection).ReadString('\n'); err != nil || line != `{"verb":"watch"}`+"\n" {
		return
	}
	c.mu.Lock()
	c.watchers = append(c.watchers, connection)
	defer c.mu.Unlock()
	for seen := -1; !c.closed; {
		if seen == c.version {
			c.changed.Wait()
			continue
		}
		seen = c.version
		content, _ := json.Marshal(map[string]any{"state": map[string]any{"name": "x", "components": c.states}})
		c.mu.Unlock()
		_, err := connection.Write(append(content, '\n'))
		c.mu.Lock()
		if err != nil {
			return
		}
	}
}

// set changes the phase of a control plane's process; "" removes it.
func (c *cluster) set(name string, to phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := []component{}
	for _, each := range c.states {
		if each.Name != prefix+name {
			kept = append(kept, each)
		}
	}
	if to != "" {
		kept = append(kept, component{Name: prefix + name, Phase: to})
	}
	c.states = kept
	c.version++
	c.changed.Broadcast()
}

// place makes the folder of a control plane; set makes it known.
func (c *cluster) place(uid string) process {
	c.t.Helper()
	made := process{Name: "of-" + uid, Port: freePort(c.t), Internal: freePort(c.t)}
	folder := filepath.Join(c.folder, "hosted", uid)
	check(c.t, os.MkdirAll(filepath.Join(folder, "pki"), 0o700))
	c.issue(filepath.Join(folder, "pki"))
	c.write(uid, made)
	return made
}

func (c *cluster) write(uid string, what process) {
	c.t.Helper()
	content, err := json.Marshal(what)
	check(c.t, err)
	check(c.t, os.WriteFile(filepath.Join(c.folder, "hosted", uid, "process.json"), content, 0o600))
}

func (c *cluster) issue(folder string) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(c.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(c.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(c.t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	check(c.t, os.WriteFile(filepath.Join(folder, "server.crt"), public, 0o600))
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	check(c.t, os.WriteFile(filepath.Join(folder, "server.key"), secret, 0o600))
	c.trust.AppendCertsFromPEM(public)
}

// ask sends a line to the socket of waiters; the answer comes by the function.
func (c *cluster) ask(line string) (net.Conn, func() string) {
	c.t.Helper()
	connection, err := net.Dial("unix", filepath.Join(c.folder, "hosted", "knock.sock"))
	check(c.t, err)
	c.t.Cleanup(func() { connection.Close() })
	return connection, c.sent(connection, line)
}

// sent sends a line of a waiter; the answer comes by the function.
func (c *cluster) sent(connection net.Conn, line string) func() string {
	c.t.Helper()
	_, err := connection.Write([]byte(line + "\n"))
	check(c.t, err)
	return func() string {
		c.t.Helper()
		check(c.t, connection.SetReadDeadline(time.Now().Add(patience)))
		got, err := bufio.NewReader(connection).ReadString('\n')
		check(c.t, err)
		return got
	}
}

// listening waits until the proxy listens for a control plane.
func (c *cluster) listening(uid string) {
	c.t.Helper()
	_, answer := c.ask(fmt.Sprintf(`{"uid":%q,"until":"listening"}`, uid))
	if got := answer(); got != "{}\n" {
		c.t.Fatalf("got %q", got)
	}
}

// waits begins to wait for a client, and returns once the proxy knows that.
func (c *cluster) waits(uid string) func() string {
	c.t.Helper()
	_, answer := c.ask(fmt.Sprintf(`{"uid":%q,"until":"client"}`, uid))
	eventually(c.t, "the waiter is registered", func() bool {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		for each := range c.all.waiters[uid] {
			if each.what == untilClient {
				return true
			}
		}
		return false
	})
	return answer
}

// phaseIs waits until the proxy knows the phase of a control plane.
func (c *cluster) phaseIs(uid string, wanted phase) {
	c.t.Helper()
	eventually(c.t, "the phase is known", func() bool {
		known := c.known(uid)
		if known == nil {
			return false
		}
		known.mu.Lock()
		defer known.mu.Unlock()
		return known.state[0].Phase == wanted
	})
}

func (c *cluster) known(uid string) *plane {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return c.all.byUID[uid]
}

// running is a control plane whose process is ready, and the process.
func (c *cluster) running(uid string) (process, *net.TCPListener) {
	c.t.Helper()
	made := c.place(uid)
	return made, c.startReady(uid, made)
}

// runningForOperator makes a control plane that is ready, and that the operator reaches at a port of its own.
func (c *cluster) runningForOperator(uid string) (process, *net.TCPListener) {
	c.t.Helper()
	made := c.place(uid)
	made.Operator = freePort(c.t)
	c.write(uid, made)
	return made, c.startReady(uid, made)
}

func (c *cluster) startReady(uid string, made process) *net.TCPListener {
	c.t.Helper()
	server := c.start(made)
	c.set(made.Name, ready)
	c.phaseIs(uid, ready)
	return server
}

// start starts the process of a control plane: what accepts at its internal port.
func (c *cluster) start(of process) *net.TCPListener {
	c.t.Helper()
	server, err := net.ListenTCP("tcp4", loopback(of.Internal))
	check(c.t, err)
	c.t.Cleanup(func() { server.Close() })
	return server
}

// dial connects as a client that begins with greeting.
func (c *cluster) dial(to process) *net.TCPConn {
	c.t.Helper()
	connection := c.connect(to)
	_, err := connection.Write(greeting)
	check(c.t, err)
	return connection
}

// connect connects as a client that has not sent anything.
func (c *cluster) connect(to process) *net.TCPConn {
	c.t.Helper()
	connection, err := net.DialTCP("tcp4", nil, loopback(to.Port))
	check(c.t, err)
	c.t.Cleanup(func() { connection.Close() })
	check(c.t, connection.SetDeadline(time.Now().Add(patience)))
	return connection
}

func accept(t *testing.T, server *net.TCPListener) *net.TCPConn {
	t.Helper()
	return acceptBeginning(t, server, greeting)
}

// acceptBeginning accepts a client at the process, which must send some bytes first.
func acceptBeginning(t *testing.T, server *net.TCPListener, first []byte) *net.TCPConn {
	t.Helper()
	check(t, server.SetDeadline(time.Now().Add(patience)))
	connection, err := server.AcceptTCP()
	check(t, err)
	t.Cleanup(func() { connection.Close() })
	check(t, connection.SetDeadline(time.Now().Add(patience)))
	got := make([]byte, len(first))
	_, err = io.ReadFull(connection, got)
	check(t, err)
	if !bytes.Equal(got, first) {
		t.Fatal("the process got another beginning")
	}
	return connection
}

// greeting is the ClientHello of a client.
var greeting = func() []byte {
	client, server := net.Pipe()
	go func() { _ = tls.Client(client, &tls.Config{ServerName: "x"}).Handshake() }()
	made := make([]byte, maxHello)
	n, err := server.Read(made)
	server.Close()
	if err != nil {
		panic(err)
	}
	return made[:n]
}()

// secure is the TLS of a client that knows the certificates.
func (c *cluster) secure(over net.Conn) *tls.Conn {
	return tls.Client(over, &tls.Config{RootCAs: c.trust, ServerName: "127.0.0.1", NextProtos: []string{"h2", "http/1.1"}})
}

// freePort is below the ports of outgoing connections.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 28000 + mathrand.IntN(4000)
		if listener, err := net.ListenTCP("tcp4", loopback(port)); err == nil {
			listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
