package main

import (
	"net"
	"testing"
)

// replicated is a control plane with two processes that are ready.
func replicated(c *cluster) (process, *net.TCPListener, *net.TCPListener) {
	c.t.Helper()
	made := c.place("a")
	made.Others[0] = freePort(c.t)
	c.write("a", made)
	first := c.start(made)
	second := c.start(process{Internal: made.Others[0]})
	c.set(made.Name+".2", ready)
	c.set(made.Name, ready)
	c.phaseIs("a", ready)
	return made, first, second
}

func TestClientsAreSpreadOverTheProcesses(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	to, first, second := replicated(c)
	for range 2 {
		c.dial(to)
		c.dial(to)
		accept(t, first)
		accept(t, second)
	}
}

func TestAClientReachesTheProcessThatAnswers(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	to, first, second := replicated(c)
	// It has ended, and the supervisor has not seen that yet.
	first.Close()
	for range 4 {
		c.dial(to)
		accept(t, second)
	}
	c.set(to.Name, "BackOff")
	c.phaseIs("a", "BackOff")
	c.dial(to)
	accept(t, second)
}

func TestWithoutAnyProcessAClientIsHeldUntilOneIsReady(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	to, first, second := replicated(c)
	first.Close()
	second.Close()
	c.set(to.Name, "Starting")
	c.set(to.Name+".2", "Starting")
	c.phaseIs("a", "Starting")
	c.dial(to)
	again := c.start(process{Internal: to.Others[0]})
	c.set(to.Name+".2", ready)
	accept(t, again)
}

func TestOneOfTwoThatIsStoppedWakesNothing(t *testing.T) {
	c := newCluster(t, holdTime, nil)
	to, _, _ := replicated(c)
	c.set(to.Name, stopped)
	c.phaseIs("a", stopped)
	if !c.known("a").mayWake() {
		t.Fatal("the other process runs")
	}
	if c.known("a").registered() {
		t.Fatal("a waiter learns of a client that is served")
	}
}
