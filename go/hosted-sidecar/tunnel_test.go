package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A pod has a sidecar's tunnel, and the files of both ends.
type pod struct {
	socket, address string
	client          *tls.Config
	identity        *tls.Config
}

func authority(t *testing.T) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return about, key
}

func issued(t *testing.T, parent *x509.Certificate, by *ecdsa.PrivateKey, name string) (cert, key []byte) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, about, parent, &own.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

func started(t *testing.T) pod {
	t.Helper()
	folder := t.TempDir()
	parent, by := authority(t)
	der, err := x509.CreateCertificate(rand.Reader, parent, parent, &by.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := issued(t, parent, by, "sidecar")
	for name, data := range map[string][]byte{
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "tls.crt": cert, "tls.key": key,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	identity, err := identityOf(folder)
	if err != nil {
		t.Fatal(err)
	}
	operators, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { operators.Close() })
	socket := filepath.Join(folder, "gate.sock")
	processes, err := listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { processes.Close() })
	gate := newPool(10 * time.Second)
	go serve(processes, mostOpen, gate.handOver)
	go serve(operators, mostOpen, func(conn net.Conn) {
		park(tls.Server(conn, identity), map[string]*pool{"gate": gate}, map[string]string{"activity": filepath.Join(folder, "activity.sock")})
	})
	certificate, private := issued(t, parent, by, "operator")
	pair, err := tls.X509KeyPair(certificate, private)
	if err != nil {
		t.Fatal(err)
	}
	return pod{socket, operators.Addr().String(), &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: identity.ClientCAs, ServerName: "sidecar",
	}, identity}
}

func (p pod) parked(t *testing.T, config *tls.Config, name string) *tls.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", p.address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write([]byte(name + "\n")); err != nil {
		t.Fatal(err)
	}
	return conn
}

func (p pod) process(t *testing.T, says string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write([]byte(says)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func expect(t *testing.T, from io.Reader, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v; want %q", got, err, text)
	}
}

// A goroutine that read the map of sockets while others were added ended the program.
func TestSocketsAreServedWhileOthersAreAdded(t *testing.T) {
	folder := filepath.Dir(started(t).socket)
	way := sockets{folder: t.TempDir()}
	for number := range 100 {
		way.served = append(way.served, fmt.Sprint(number))
	}
	ended, stop := context.WithCancel(context.Background())
	stop()
	for range 20 {
		if err := run(ended, "127.0.0.1:0", "127.0.0.1:1", "127.0.0.1:0", folder, way, time.Second, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAProcessSpeaksWithTheOperatorThatHasParked(t *testing.T) {
	p := started(t)
	operator := p.parked(t, p.client, "gate")
	process := p.process(t, "CONNECT\n")
	expect(t, operator, "!CONNECT\n")
	operator.Write([]byte("OK\n"))
	expect(t, process, "OK\n")
	process.Close()
	if _, err := operator.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the end of the process is not passed on: %v", err)
	}
}

func TestAProcessWaitsForTheOperator(t *testing.T) {
	p := started(t)
	process := p.process(t, "first\n")
	operator := p.parked(t, p.client, "gate")
	expect(t, operator, "!first\n")
	operator.Close()
	if _, err := process.Read(make([]byte, 1)); err == nil {
		t.Fatal("the end of the operator is not passed on")
	}
}

func TestAnOperatorThatHasLeftGetsNoProcess(t *testing.T) {
	p := started(t)
	left := p.parked(t, p.client, "gate")
	left.CloseWrite()
	// Its connection is closed once the sidecar has seen that it left.
	bufio.NewReader(left).ReadByte()
	stays := p.parked(t, p.client, "gate")
	p.process(t, "hello\n")
	expect(t, stays, "!hello\n")
}

func TestOnlyTheOperatorOfThisPodParks(t *testing.T) {
	p, other := started(t), started(t)
	without := p.client.Clone()
	without.Certificates = nil
	foreign := p.client.Clone()
	foreign.Certificates = other.client.Certificates
	for name, config := range map[string]*tls.Config{"without a certificate": without, "of another Pod": foreign} {
		// With TLS 1.3, a client learns of the refusal when it reads.
		conn, err := tls.Dial("tcp", p.address, config)
		if err != nil {
			continue
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		conn.Write([]byte("gate\n"))
		if _, err := conn.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("%s: not rejected: %v", name, err)
		}
		conn.Close()
	}
}

func TestTheOperatorReachesASocketOfTheProcess(t *testing.T) {
	p := started(t)
	absent := p.parked(t, p.client, "activity")
	if _, err := absent.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the process does not listen, and the operator got %v", err)
	}
	process, err := net.Listen("unix", filepath.Join(filepath.Dir(p.socket), "activity.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Close() })
	operator := p.parked(t, p.client, "activity")
	expect(t, operator, "!")
	peer, err := process.Accept()
	if err != nil {
		t.Fatal(err)
	}
	operator.Write([]byte("{}\n"))
	expect(t, peer, "{}\n")
	peer.Write([]byte("answer\n"))
	expect(t, operator, "answer\n")
	operator.Close()
	if _, err := peer.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the end of the operator is not passed on: %v", err)
	}
}

func TestAnUnknownSocketIsRejected(t *testing.T) {
	p := started(t)
	operator := p.parked(t, p.client, "other")
	if _, err := operator.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("not closed: %v", err)
	}
}
