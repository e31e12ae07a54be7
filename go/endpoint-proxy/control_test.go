package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// pods is a proxy of control planes in Pods, and the authority of its operators.
type pods struct {
	// Its clients, and the process of a Pod, are those of the tests of local clusters.
	cluster
	at    string
	own   *tls.Config
	told  *told
	ready atomic.Bool
}

func newPods(t *testing.T) *pods {
	t.Helper()
	p := &pods{cluster: cluster{t: t, folder: t.TempDir(), trust: x509.NewCertPool()}, told: newTold()}
	key, authority := p.authority("")
	p.own = p.operator(key, authority)
	p.all = newPlanes(p.told, listenHere)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	p.at = listener.Addr().String()
	serving := &control{all: p.all, told: p.told, keys: p.folder, ready: func() { p.ready.Store(true) }}
	go func() { _ = serving.serve(listener) }()
	t.Cleanup(func() {
		listener.Close()
		p.all.close()
	})
	return p
}

// authority writes the keys of the proxy, and returns those of the authority that has signed them.
func (p *pods) authority(called string) (*ecdsa.PrivateKey, *x509.Certificate) {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(p.t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(p.t, err)
	signed, err := x509.ParseCertificate(der)
	check(p.t, err)
	public, private := p.signed(key, signed)
	for name, content := range map[string][]byte{
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "tls.crt": public, "tls.key": private,
	} {
		if called == "" {
			check(p.t, os.WriteFile(filepath.Join(p.folder, name), content, 0o600))
		}
	}
	return key, signed
}

func (p *pods) signed(key *ecdsa.PrivateKey, by *x509.Certificate) ([]byte, []byte) {
	p.t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(p.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"proxy"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, own.Public(), key)
	check(p.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(own)
	check(p.t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return public, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

func (p *pods) operator(key *ecdsa.PrivateKey, by *x509.Certificate) *tls.Config {
	p.t.Helper()
	pair, err := tls.X509KeyPair(p.signed(key, by))
	check(p.t, err)
	content, err := os.ReadFile(filepath.Join(p.folder, "ca.crt"))
	check(p.t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(content)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: "proxy"}
}

// session is an operator that is connected.
type session struct {
	t     *testing.T
	conn  *tls.Conn
	lines *bufio.Reader
}

func (p *pods) connected() *session {
	p.t.Helper()
	conn, err := tls.Dial("tcp", p.at, p.own)
	check(p.t, err)
	p.t.Cleanup(func() { conn.Close() })
	check(p.t, conn.SetDeadline(time.Now().Add(patience)))
	return &session{p.t, conn, bufio.NewReader(conn)}
}

func (s *session) send(line string) {
	s.t.Helper()
	_, err := s.conn.Write([]byte(line + "\n"))
	check(s.t, err)
}

func (s *session) expect(line string) {
	s.t.Helper()
	got, err := s.lines.ReadString('\n')
	check(s.t, err)
	if got != line+"\n" {
		s.t.Fatalf("got %q, not %q", got, line)
	}
}

// tells reports a control plane, and waits for the answer.
func (s *session) tells(what toldPlane) {
	s.t.Helper()
	content, err := json.Marshal(what)
	check(s.t, err)
	s.send(fmt.Sprintf(`{"id":7,"until":"told","plane":%s}`, content))
	s.expect(`{"id":7}`)
}

// made is a control plane with a certificate, and the process of its only Pod.
func (p *pods) made(uid string) (toldPlane, process, *net.TCPListener) {
	p.t.Helper()
	folder := filepath.Join(p.folder, uid)
	check(p.t, os.Mkdir(folder, 0o700))
	p.issue(folder)
	certificate, err := os.ReadFile(filepath.Join(folder, "server.crt"))
	check(p.t, err)
	key, err := os.ReadFile(filepath.Join(folder, "server.key"))
	check(p.t, err)
	to := process{Port: freePort(p.t), Internal: freePort(p.t)}
	server := p.start(to)
	return toldPlane{
		UID: uid, Name: "of-" + uid, Port: to.Port, Phase: ready, Addresses: []string{server.Addr().String()},
		Certificate: string(certificate), Key: string(key),
	}, to, server
}

func TestAControlPlaneInAPodIsServedAlsoWhileNoOperatorIsConnected(t *testing.T) {
	p := newPods(t)
	told, to, server := p.made("a")
	first := p.connected()
	first.tells(told)
	client := p.dial(to)
	peer := accept(t, server)
	first.conn.Close()
	passes(t, client, peer)
	p.dial(to)
	accept(t, server)
	// The next operator reports another Pod: connections stay.
	other := p.start(process{Internal: freePort(t)})
	told.Addresses = []string{other.Addr().String()}
	p.connected().tells(told)
	passes(t, client, peer)
	p.dial(to)
	accept(t, other)
}

func TestAControlPlaneInAPodIsClosedWhenItsOperatorReportsThat(t *testing.T) {
	p := newPods(t)
	told, to, server := p.made("a")
	operator := p.connected()
	operator.tells(told)
	client := p.dial(to)
	peer := accept(t, server)
	passes(t, client, peer)
	told.Closed = true
	operator.tells(told)
	if _, err := io.ReadAll(client); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("an open connection stays")
	}
	operator.conn.Close()
	response, body := p.ask503(p.connect(to))
	if response.StatusCode != 503 || !strings.Contains(string(body), "suspended") {
		t.Fatalf("got %v, %s", response, body)
	}
}

func TestAClientOfAPodThatIsGoneIsReportedAndHeld(t *testing.T) {
	p := newPods(t)
	told, to, server := p.made("a")
	at := told.Addresses
	told.Phase, told.Addresses = stopped, nil
	operator := p.connected()
	operator.tells(told)
	operator.send(`{"id":1,"uid":"a","until":"client"}`)
	operator.send(`{"id":1,"until":"withdrawn"}`)
	operator.send(`{"id":2,"uid":"a","until":"client"}`)
	operator.send(`{"id":3,"until":"ready"}`)
	operator.expect(`{"id":3}`)
	if !p.ready.Load() {
		t.Fatal("the proxy is not ready")
	}
	p.dial(to)
	operator.expect(`{"id":2}`)
	told.Phase, told.Addresses = ready, at
	operator.tells(told)
	accept(t, server)
}

func TestAControlPlaneThatIsDeletedIsNotListenedFor(t *testing.T) {
	p := newPods(t)
	told, to, server := p.made("a")
	operator := p.connected()
	operator.tells(told)
	p.dial(to)
	accept(t, server)
	operator.send(`{"id":1,"uid":"a","until":"gone"}`)
	operator.expect(`{"id":1}`)
	if connection, err := net.DialTCP("tcp4", nil, loopback(to.Port)); err == nil {
		connection.Close()
		t.Fatal("its port is listened at")
	}
	// Another one has its port, and its removal was not reported.
	operator.tells(told)
	next, _, other := p.made("b")
	next.Port = told.Port
	operator.tells(next)
	p.dial(to)
	accept(t, other)
}

func TestAnAddressThatAnotherControlPlaneHasByNowIsNotDialled(t *testing.T) {
	p := newPods(t)
	told, to, _ := p.made("a")
	kept := p.start(process{Internal: freePort(t)})
	told.Addresses = append(told.Addresses, kept.Addr().String())
	operator := p.connected()
	operator.tells(told)
	// A Pod of the first one ended, and the next one has its address; neither was reported.
	next, _, _ := p.made("b")
	next.Addresses, next.Closed = told.Addresses[:1], true
	operator.tells(next)
	for range 4 {
		p.dial(to)
		accept(t, kept)
	}
	next.Addresses = told.Addresses
	operator.tells(next)
	known := p.known("a")
	known.mu.Lock()
	defer known.mu.Unlock()
	if found := known.state.many(); found != 0 {
		t.Fatalf("the first one has %d addresses", found)
	}
}

func TestMachinesOfAControlPlaneInAPodComeInAtTheirOwnPortAndWakeNone(t *testing.T) {
	p := newPods(t)
	told, _, server := p.made("a")
	told.Nodes = freePort(t)
	operator := p.connected()
	operator.tells(told)
	machines := process{Port: told.Nodes}
	passes(t, p.dial(machines), accept(t, server))
	told.Phase, told.Addresses = stopped, nil
	operator.tells(told)
	if _, err := io.ReadAll(p.dial(machines)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("a machine is held")
	}
	known := p.known("a")
	known.mu.Lock()
	if known.knocking != 0 || !known.knockedAt.IsZero() {
		t.Error("a machine wakes the control plane")
	}
	known.mu.Unlock()
	// The next one has the port by now, and the end of the first one was not reported.
	next, to, other := p.made("b")
	next.Port = told.Nodes
	operator.tells(next)
	to.Port = next.Port
	passes(t, p.dial(to), accept(t, other))
	if p.known("a") != nil {
		t.Fatal("the first one has a port of another one")
	}
}

func TestAReportThatIsNotCompleteIsRejected(t *testing.T) {
	p := newPods(t)
	told, _, _ := p.made("a")
	for name, spoil := range map[string]func(*toldPlane){
		"port":        func(of *toldPlane) { of.Port = 0 },
		"nodes":       func(of *toldPlane) { of.Nodes = of.Port },
		"phase":       func(of *toldPlane) { of.Phase = "" },
		"uid":         func(of *toldPlane) { of.UID = "" },
		"certificate": func(of *toldPlane) { of.Key = "" },
		"address":     func(of *toldPlane) { of.Addresses = []string{"192.0.2.9"} },
	} {
		wrong := told
		spoil(&wrong)
		if err := p.told.tell(p.all, wrong); err == nil {
			t.Errorf("a report with a wrong %s is accepted", name)
		}
	}
	if len(p.all.byUID) != 0 {
		t.Fatal("a port is listened at")
	}
}

func TestOnlyAnOperatorWithACertificateOfThisProxyIsServed(t *testing.T) {
	p := newPods(t)
	key, authority := p.authority("other")
	foreign, without := p.operator(key, authority), p.own.Clone()
	without.Certificates = nil
	for name, config := range map[string]*tls.Config{"another authority": foreign, "no certificate": without} {
		// With TLS 1.3, a client learns of the refusal when it reads.
		conn, err := tls.Dial("tcp", p.at, config)
		if err != nil {
			continue
		}
		check(t, conn.SetDeadline(time.Now().Add(patience)))
		_, _ = conn.Write([]byte(`{"id":1,"until":"ready"}` + "\n"))
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: not rejected: %v", name, err)
		}
		conn.Close()
	}
	if p.ready.Load() {
		t.Fatal("a stranger is served")
	}
}
