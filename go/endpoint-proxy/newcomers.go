package main

import (
	"net"
	"slices"
	"sync"
)

// newcomers are the connections to one control plane whose ClientHello is not whole yet, the oldest first. They take no
// place of those that are established: above their limit, the oldest ends, because clients send at once.
type newcomers struct {
	mu   sync.Mutex
	all  []*net.TCPConn
	most func() int
}

// add takes a connection in, and ends another one if there are too many, or too many from its address.
func (n *newcomers) add(client *net.TCPConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	peer, most := peerOf(client), n.most()
	if first, many := n.of(peer); peer != "" && many >= max(most/4, 1) {
		n.end(first)
	}
	for len(n.all) >= most {
		n.end(0)
	}
	n.all = append(n.all, client)
}

// of returns the index of the oldest connection from an address, and how many there are.
func (n *newcomers) of(peer string) (int, int) {
	first, many := -1, 0
	for index, each := range n.all {
		if peerOf(each) == peer {
			if many == 0 {
				first = index
			}
			many++
		}
	}
	return first, many
}

func (n *newcomers) end(index int) {
	refuse(n.all[index])
	n.all = slices.Delete(n.all, index, index+1)
}

func (n *newcomers) remove(client *net.TCPConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = slices.DeleteFunc(n.all, func(each *net.TCPConn) bool { return each == client })
}

// peers counts the established connections of each address to one control plane, except those of this machine.
type peers struct {
	mu   sync.Mutex
	used map[string]int64
}

// take returns whether an address may have one more, of so many at most.
func (p *peers) take(peer string, most int64) bool {
	if peer == "" {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used[peer] >= most {
		return false
	}
	p.used[peer]++
	return true
}

func (p *peers) give(peer string) {
	if peer == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used[peer]--; p.used[peer] <= 0 {
		delete(p.used, peer)
	}
}

// peerOf returns the address of a client; "" for this machine, all of whose programs share it.
func peerOf(client *net.TCPConn) string {
	found, ok := client.RemoteAddr().(*net.TCPAddr)
	if !ok || found.IP.IsLoopback() {
		return ""
	}
	return found.IP.String()
}
