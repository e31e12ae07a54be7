package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestBytesPassUnchangedInBothDirectionsWithHalfClose(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	to, server := c.running("a")
	client := c.dial(to)
	peer := accept(t, server)
	sent, answered := make([]byte, 3<<20+7), make([]byte, 2<<20+1)
	rand.Read(sent)
	rand.Read(answered)
	go func() {
		_, _ = client.Write(sent)
		_ = client.CloseWrite()
	}()
	got, err := io.ReadAll(peer)
	check(t, err)
	if !bytes.Equal(got, sent) {
		t.Fatal("the process got other bytes")
	}
	// The client has ended its half; the other one is open still.
	go func() {
		_, _ = peer.Write(answered)
		_ = peer.CloseWrite()
	}()
	got, err = io.ReadAll(client)
	check(t, err)
	if !bytes.Equal(got, answered) {
		t.Fatal("the client got other bytes")
	}
}

func TestAResetOfOneSideEndsTheOther(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	to, server := c.running("a")
	client := c.dial(to)
	peer := accept(t, server)
	check(t, client.SetLinger(0))
	client.Close()
	if _, err := io.ReadAll(peer); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the process is not told that the client is gone")
	}
	other := c.dial(to)
	peer = accept(t, server)
	// Until bytes arrive, the proxy may not know that it is connected: after a reset, it would connect again.
	_, err := other.Write([]byte("x"))
	check(t, err)
	_, err = io.ReadFull(peer, make([]byte, 1))
	check(t, err)
	check(t, peer.SetLinger(0))
	peer.Close()
	if _, err := io.ReadAll(other); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the client is not told that the process is gone")
	}
	eventually(t, "nothing is counted", func() bool { return c.known("a").share.open.used.Load() == 0 })
}

func TestUsersOfOneControlPlaneDoNotTakeTheConnectionsOfAnother(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	one, first := c.running("a")
	other, second := c.running("b")
	c.all.limits.most.Store(5)
	for range 5 {
		c.dial(one)
		accept(t, first)
	}
	c.refuses(one)
	client := c.dial(other)
	peer := accept(t, second)
	_, err := client.Write([]byte("x"))
	check(t, err)
	_, err = io.ReadFull(peer, make([]byte, 1))
	check(t, err)
}

func TestDescriptorsAreDividedAmongControlPlanes(t *testing.T) {
	for _, each := range []struct {
		files, many int
		wanted      int64
	}{{20000, 1, maxOpen}, {20000, 100, 43}, {1024, 1, 113}, {0, 1000, 1}} {
		made := newLimits(each.files)
		made.divide(each.many)
		if got := made.most.Load(); got != each.wanted {
			t.Errorf("%d files for %d: got %d, want %d", each.files, each.many, got, each.wanted)
		}
	}
}

func TestRefusalsAreDividedAmongControlPlanes(t *testing.T) {
	for _, each := range []struct {
		many   int
		wanted int64
	}{{1, maxRefused}, {4, 32}, {5, 25}, {1000, 1}} {
		made := newLimits(20000)
		one := made.share()
		made.divide(each.many)
		if got := one.refused.most.Load(); got != each.wanted {
			t.Errorf("for %d: got %d, want %d", each.many, got, each.wanted)
		}
	}
}

func TestThePortOfOneThatIsRemovedInItsSleepIsFree(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	made := c.place("a")
	folder := filepath.Join(c.folder, "hosted", "a")
	check(t, os.Rename(filepath.Join(folder, "process.json"), filepath.Join(folder, "stopped.json")))
	c.set(made.Name, "")
	c.listening("a")
	check(t, os.Remove(filepath.Join(folder, "stopped.json")))
	// No component changes: it had none.
	c.set(made.Name, "")
	eventually(t, "the port of a removed one is free", func() bool {
		listener, err := net.ListenTCP("tcp4", loopback(made.Port))
		if err == nil {
			listener.Close()
		}
		return err == nil
	})
}

func TestControlPlanesComeAndGoWithoutARestart(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	one, first := c.running("a")
	stays := c.dial(one)
	peer := accept(t, first)
	other, second := c.running("b")
	c.dial(other)
	accept(t, second)
	check(t, os.RemoveAll(filepath.Join(c.folder, "hosted", "b")))
	c.set(other.Name, "")
	eventually(t, "the port of a removed one is free", func() bool {
		listener, err := net.ListenTCP("tcp4", loopback(other.Port))
		if err == nil {
			listener.Close()
		}
		return err == nil
	})
	_, err := stays.Write([]byte("x"))
	check(t, err)
	_, err = io.ReadFull(peer, make([]byte, 1))
	check(t, err)
}

func TestAProcessThatListensItselfIsLeftAlone(t *testing.T) {
	// Of an earlier version: its process.json names no internal port.
	c := newCluster(t, holdTime, func(c *cluster) {
		c.place("a")
		c.write("a", process{Name: "of-a", Port: freePort(t)})
		c.set("of-a", ready)
	})
	c.running("b")
	if c.known("a") != nil {
		t.Fatal("the proxy serves it")
	}
}

func TestAPortIsTakenOverWhenTheProcessThatHadItEnds(t *testing.T) {
	var to process
	var before *net.TCPListener
	c := newCluster(t, holdTime, func(c *cluster) {
		to = c.place("a")
		found, err := net.ListenTCP("tcp4", loopback(to.Port))
		check(t, err)
		before = found
		c.set(to.Name, ready)
	})
	c.running("b")
	if c.known("a") != nil {
		t.Fatal("two listen at one port")
	}
	before.Close()
	server := c.start(to)
	c.set(to.Name, "Starting")
	c.set(to.Name, ready)
	c.phaseIs("a", ready)
	c.dial(to)
	accept(t, server)
}

func TestAWatchThatEndsBeginsAgain(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	to, server := c.running("a")
	c.mu.Lock()
	for _, each := range c.watchers {
		each.Close()
	}
	c.mu.Unlock()
	c.dial(to)
	accept(t, server)
	c.set(to.Name, stopped)
	c.phaseIs("a", stopped)
}
