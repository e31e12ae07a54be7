package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shut closes a control plane to its clients as the operator does.
func (c *cluster) shut(uid string) {
	c.t.Helper()
	check(c.t, os.WriteFile(filepath.Join(c.folder, "hosted", uid, closedFile), nil, 0o600))
	_, answer := c.ask(fmt.Sprintf(`{"uid":%q,"until":"closed"}`, uid))
	if got := answer(); got != "{}\n" {
		c.t.Fatalf("got %q", got)
	}
}

// passes checks that a byte of a client arrives at the process.
func passes(t *testing.T, client, peer net.Conn) {
	t.Helper()
	_, err := client.Write(hello(1))
	check(t, err)
	_, err = io.ReadFull(peer, make([]byte, 1))
	check(t, err)
}

func TestAClosedControlPlaneEndsItsConnectionsAndAnswers503UntilItIsOpened(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	to, server := c.running("a")
	other, second := c.running("b")
	client, stays := c.dial(to), c.dial(other)
	peer, otherPeer := accept(t, server), accept(t, second)
	passes(t, client, peer)
	c.shut("a")
	if _, err := io.ReadAll(client); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("an open connection stays")
	}
	if _, err := io.ReadAll(peer); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the process is not told that the client is gone")
	}
	response, body := c.ask503(c.connect(to))
	if response.StatusCode != 503 || response.Header.Get("Retry-After") != "" || !strings.Contains(string(body), "suspended") {
		t.Fatalf("got %v, %s", response, body)
	}
	// Another control plane is not affected.
	passes(t, stays, otherPeer)
	check(t, os.Remove(filepath.Join(c.folder, "hosted", "a", closedFile)))
	again := c.dial(to)
	passes(t, again, accept(t, server))
}

func TestAClosedControlPlaneThatSleepsIsNotWoken(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	to := c.asleep("a")
	c.waits("a")
	c.shut("a")
	if response, _ := c.ask503(c.connect(to)); response.StatusCode != 503 {
		t.Fatalf("got %d", response.StatusCode)
	}
	if !c.known("a").knockedAt.IsZero() {
		t.Fatal("it has knocked")
	}
}

func TestClosingEndsConnectionsFromBeforeThePortsChanged(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	to, server := c.running("a")
	client := c.dial(to)
	peer := accept(t, server)
	passes(t, client, peer)
	before := c.known("a")
	changed := to
	changed.Others[0] = freePort(t)
	c.write("a", changed)
	c.set(to.Name, ready)
	eventually(t, "the ports have changed", func() bool { now := c.known("a"); return now != nil && now != before })
	c.shut("a")
	if _, err := io.ReadAll(client); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("an open connection stays")
	}
}

func TestMachinesReachAnyProcessAndWakeNone(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	to := c.place("a")
	to.Nodes, to.Others[0] = freePort(t), freePort(t)
	c.write("a", to)
	own := process{Port: to.Nodes}
	second := c.start(process{Internal: to.Others[0]})
	// The first one has ended.
	c.set(to.Name+".2", ready)
	eventually(t, "the second process is known", func() bool {
		now := c.known("a")
		if now == nil {
			return false
		}
		now.mu.Lock()
		defer now.mu.Unlock()
		return now.state.isReady()
	})
	passes(t, c.dial(own), accept(t, second))
	second.Close()
	c.set(to.Name+".2", stopped)
	eventually(t, "no process is ready", func() bool {
		now := c.known("a")
		now.mu.Lock()
		defer now.mu.Unlock()
		return !now.state.isReady()
	})
	if _, err := io.ReadAll(c.dial(own)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("a machine is held")
	}
	now := c.known("a")
	now.mu.Lock()
	defer now.mu.Unlock()
	if now.knocking != 0 || !now.knockedAt.IsZero() {
		t.Fatal("a machine wakes the control plane")
	}
}

func TestTheOperatorReachesAClosedControlPlaneAtItsOwnPort(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	to, server := c.runningForOperator("a")
	own := process{Port: to.Operator}
	before := c.dial(own)
	peer := accept(t, server)
	passes(t, before, peer)
	// Users cannot take its connections.
	c.all.limits.most.Store(1)
	c.dial(to)
	accept(t, server)
	c.refuses(to)
	c.shut("a")
	passes(t, before, peer)
	passes(t, c.dial(own), accept(t, server))
}
