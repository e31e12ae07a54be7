package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asleep is a control plane whose process does not run, some time after it ended.
func (c *cluster) asleep(uid string) process {
	c.t.Helper()
	made := c.place(uid)
	c.set(made.Name, stopped)
	c.phaseIs(uid, stopped)
	return made
}

// closes checks that the proxy ends a connection without an answer.
func closes(t *testing.T, client net.Conn) {
	t.Helper()
	n, err := client.Read(make([]byte, 1))
	if n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v", n, err)
	}
}

// hello begins as a TLS connection does, with bytes that do not repeat.
func hello(size int) []byte {
	made := make([]byte, size)
	rand.Read(made)
	made[0] = handshakeRecord
	return made
}

// refuses checks that the proxy ends a new connection at once: the reset may come before connect(2) returns.
func (c *cluster) refuses(to process) {
	c.t.Helper()
	client, err := net.DialTCP("tcp4", nil, loopback(to.Port))
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	check(c.t, err)
	defer client.Close()
	check(c.t, client.SetDeadline(time.Now().Add(patience)))
	// The reset may come before.
	_, _ = client.Write(greeting)
	closes(c.t, client)
}

func TestAClientIsHeldUntilTheProcessIsReady(t *testing.T) {
	c := newCluster(t, time.Minute, nil)
	to := c.asleep("a")
	knocked := c.waits("a")
	client, sent := c.dial(to), hello(100<<10)
	go func() { _, _ = client.Write(sent) }()
	if got := knocked(); got != "{}\n" {
		t.Fatalf("the waiter got %q", got)
	}
	// A second one, and one that sends nothing more before it hears from the server.
	second, silent := c.dial(to), c.dial(to)
	_, err := second.Write(hello(1))
	check(t, err)
	c.set(to.Name, "Starting")
	c.phaseIs("a", "Starting")
	server := c.start(to)
	c.set(to.Name, ready)
	// They come in any order.
	lengths := map[int]bool{}
	for range 3 {
		peer := accept(t, server)
		_, err := peer.Write([]byte("y"))
		check(t, err)
		check(t, peer.CloseWrite())
		go func() { _, _ = io.Copy(io.Discard, silent); silent.Close() }()
		go func() {
			_, _ = io.Copy(io.Discard, second)
			_ = second.CloseWrite()
		}()
		check(t, peer.SetReadDeadline(time.Now().Add(patience)))
		if len(lengths) == 0 {
			_ = client.CloseWrite()
		}
		got, err := io.ReadAll(io.LimitReader(peer, int64(len(sent))))
		check(t, err)
		lengths[len(got)] = true
		if len(got) == len(sent) && !bytes.Equal(got, sent) {
			t.Fatal("the process got other bytes")
		}
	}
	if !lengths[0] || !lengths[1] || !lengths[len(sent)] {
		t.Fatalf("the process got %v", lengths)
	}
}

func TestAWaiterThatComesLaterLearnsOfAClientThatIsHeld(t *testing.T) {
	c := newCluster(t, time.Minute, nil)
	to := c.place("a")
	c.set(to.Name, "Stopping")
	c.phaseIs("a", "Stopping")
	_, err := c.dial(to).Write(hello(1))
	check(t, err)
	eventually(t, "the client is held", func() bool {
		known := c.known("a")
		known.mu.Lock()
		defer known.mu.Unlock()
		return known.knocking == 1
	})
	c.set(to.Name, stopped)
	c.phaseIs("a", stopped)
	_, answer := c.ask(`{"uid":"a","until":"client"}`)
	if got := answer(); got != "{}\n" {
		t.Fatalf("got %q", got)
	}
}

// ask503 sends requests over TLS, and returns the answer to the first.
func (c *cluster) ask503(client net.Conn) (*http.Response, []byte) {
	c.t.Helper()
	secured := c.secure(client)
	_, err := io.WriteString(secured, strings.Repeat("GET /version HTTP/1.1\r\nHost: x\r\n\r\n", 2))
	check(c.t, err)
	reader := bufio.NewReader(secured)
	response, err := http.ReadResponse(reader, nil)
	check(c.t, err)
	body, err := io.ReadAll(response.Body)
	check(c.t, err)
	if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
		c.t.Fatalf("after the answer: %q, %v", rest, err)
	}
	return response, body
}

func TestWithoutAWaiterTheAnswerIs503AtOnce(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	to := c.asleep("a")
	response, body := c.ask503(c.connect(to))
	var status struct {
		Kind, APIVersion, Reason string
		Code                     int
	}
	check(t, json.Unmarshal(body, &status))
	if response.StatusCode != 503 || response.Header.Get("Retry-After") != "1" || response.ProtoMajor != 1 {
		t.Fatalf("got %v", response)
	}
	if status.Kind != "Status" || status.APIVersion != "v1" || status.Code != 503 || status.Reason != "ServiceUnavailable" {
		t.Fatalf("got %s", body)
	}
	if strings.Contains(string(body), "/") {
		t.Fatalf("it reveals a path: %s", body)
	}
}

func TestAProcessThatDoesNotBecomeReadyIsA503AfterAWhile(t *testing.T) {
	// A client that sends later wakes nothing.
	const short = time.Second
	c := newCluster(t, short, nil)
	to := c.asleep("a")
	knocked := c.waits("a")
	began := time.Now()
	response, _ := c.ask503(c.connect(to))
	if response.StatusCode != 503 || time.Since(began) < short {
		t.Fatalf("got %d after %s", response.StatusCode, time.Since(began))
	}
	knocked()
	// The next connection is forwarded as soon as it can be.
	server := c.start(to)
	c.set(to.Name, ready)
	c.phaseIs("a", ready)
	c.dial(to)
	accept(t, server)
}

func TestAProcessThatHasJustEndedIsAwaited(t *testing.T) {
	c := newCluster(t, time.Minute, nil)
	to, server := c.running("a")
	// The supervisor has not noticed yet.
	server.Close()
	client := c.dial(to)
	_, err := client.Write(hello(2))
	check(t, err)
	c.set(to.Name, "BackOff")
	c.phaseIs("a", "BackOff")
	again := c.start(to)
	c.set(to.Name, ready)
	got := make([]byte, 2)
	_, err = io.ReadFull(accept(t, again), got)
	check(t, err)
}

func TestAClientThatNeverSendsWakesNothing(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	c.all.helloTime = 100 * time.Millisecond
	to := c.asleep("a")
	c.waits("a")
	closes(t, c.connect(to))
	// Nor does one that only begins.
	client := c.connect(to)
	_, err := client.Write(greeting[:3])
	check(t, err)
	closes(t, client)
	known := c.known("a")
	if !known.knockedAt.IsZero() {
		t.Fatal("it has knocked")
	}
	eventually(t, "nothing is counted", func() bool { return known.share.held.used.Load() == 0 && known.share.open.used.Load() == 0 })
}

func TestOtherProtocolsAreRefusedAndWakeNothing(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	to := c.asleep("a")
	c.waits("a")
	client := c.connect(to)
	_, err := io.WriteString(client, "GET / HTTP/1.1\r\n\r\n")
	check(t, err)
	closes(t, client)
	if !c.known("a").knockedAt.IsZero() {
		t.Fatal("it has knocked")
	}
}

func TestHeldClientsAreBounded(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	to := c.asleep("a")
	other := c.asleep("b")
	c.waits("a")
	for many := int64(1); many <= maxHeld; many++ {
		c.dial(to)
		// Of one address, only a few may be there whose ClientHello was not read yet.
		if many%16 == 0 {
			eventually(t, "all so far are held", func() bool { return c.known("a").share.held.used.Load() == many })
		}
	}
	c.refuses(to)
	// Another control plane holds its own.
	if response, _ := c.ask503(c.connect(other)); response.StatusCode != 503 {
		t.Fatalf("got %d", response.StatusCode)
	}
}

func TestAHeldClientThatEndsLeavesItsPlaceToOthers(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	to := c.asleep("a")
	c.set(to.Name, "Starting")
	c.phaseIs("a", "Starting")
	known := c.known("a")
	held := func(many int64) func() bool {
		return func() bool { return known.share.held.used.Load() == many }
	}
	closed, aborted := c.dial(to), c.dial(to)
	eventually(t, "both are held", held(2))
	closed.Close()
	eventually(t, "one is held", held(1))
	check(t, aborted.SetLinger(0))
	aborted.Close()
	eventually(t, "none is held", held(0))
	eventually(t, "no connection is counted", func() bool { return known.share.open.used.Load() == 0 })
}

func TestSlowHandshakesEndAndAreBounded(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	c.all.server.close()
	// All of them have to begin within this time.
	c.all.server = newRefusals(2 * time.Second)
	to := c.asleep("a")
	known := c.known("a")
	slow := []net.Conn{}
	for range maxRefused {
		// The rest of the handshake never comes.
		slow = append(slow, c.dial(to))
	}
	eventually(t, "all are in their handshake", func() bool { return known.share.refused.used.Load() == maxRefused })
	c.refuses(to)
	for _, each := range slow {
		if _, err := io.ReadAll(each); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("it has not ended")
		}
	}
	eventually(t, "nothing is counted", func() bool {
		return known.share.refused.used.Load() == 0 && c.all.server.all.used.Load() == 0 && known.share.open.used.Load() == 0
	})
	// A request without end is one, too.
	secured := c.secure(c.connect(to))
	_, err := io.WriteString(secured, "GET / HTTP/1.1\r\nHost: x\r\nA: ")
	check(t, err)
	_, _ = io.ReadAll(secured)
	eventually(t, "it has ended", func() bool { return known.share.open.used.Load() == 0 })
}

func TestARemovedControlPlaneEndsItsHeldClients(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	to := c.asleep("a")
	c.waits("a")
	client := c.dial(to)
	_, err := client.Write(hello(1))
	check(t, err)
	eventually(t, "the client is held", func() bool { return c.known("a").share.held.used.Load() == 1 })
	check(t, os.RemoveAll(c.folder+"/hosted/a"))
	c.set(to.Name, "")
	closes(t, client)
}

func TestWaitersAreCheckedBoundedAndForgotten(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	c.asleep("a")
	c.listening("a")
	for _, line := range []string{"", "{", `{"uid":"a"}`, `{"uid":"a","until":"noon"}`} {
		if _, answer := c.ask(line); !strings.Contains(answer(), "error") {
			t.Errorf("%q is accepted", line)
		}
	}
	waiting := []net.Conn{}
	for range maxWaiters {
		connection, _ := c.ask(`{"uid":"b","until":"client"}`)
		waiting = append(waiting, connection)
	}
	count := func() int {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		return len(c.all.waiters["b"])
	}
	eventually(t, "all are registered", func() bool { return count() == maxWaiters })
	if _, answer := c.ask(`{"uid":"b","until":"client"}`); !strings.Contains(answer(), fmt.Sprint(maxWaiters)) {
		t.Error("one more is accepted")
	}
	for _, each := range waiting {
		each.Close()
	}
	eventually(t, "all are forgotten", func() bool { return count() == 0 })
	if found, err := os.Stat(c.folder + "/hosted/knock.sock"); err != nil || found.Mode().Perm() != 0o600 {
		t.Fatalf("others may open the socket: %v, %v", found, err)
	}
}
