package main

import (
	"net"
	"sync"
)

// closedFile is in the folder of a control plane while its tenant is suspended, or its objects move to the host: its
// clients get a 503, whatever their credentials are, and whatever its process would answer. The operator writes it first,
// and asks then for the end of the connections that are open; see untilClosed.
const closedFile = "closed"

// clients are the open connections of users and pods, by the uid of their control plane. The operator's are not among
// them.
type clients struct {
	mu    sync.Mutex
	byUID map[string]map[*net.TCPConn]struct{}
}

func (c *clients) add(uid string, client *net.TCPConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byUID[uid] == nil {
		c.byUID[uid] = map[*net.TCPConn]struct{}{}
	}
	c.byUID[uid][client] = struct{}{}
}

func (c *clients) remove(uid string, client *net.TCPConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byUID[uid], client)
	if len(c.byUID[uid]) == 0 {
		delete(c.byUID, uid)
	}
}

// cut ends the connections to a control plane, also those from before its ports changed.
func (c *clients) cut(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for each := range c.byUID[uid] {
		refuse(each)
	}
}
