package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"time"
)

const (
	datastorePatience = 10 * time.Second
	// A control plane has about a dozen.
	mostDatastoreConnections = 64
)

// metadata are addresses at which machines of clouds learn secrets; those that are not link-local.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::254/128"), netip.MustParsePrefix("fd20:ce::254/128"),
	netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("192.0.0.192/32"), netip.MustParsePrefix("168.63.129.16/32"),
}

// hidden are ranges whose addresses carry an IPv4 address: a translator dials it.
var hidden = []netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("::/96"), netip.MustParsePrefix("::ffff:0:0:0/96"),
}

// datastoreRule is where the connections of one socket may lead to.
type datastoreRule struct {
	host, port string
	allowed    []netip.Prefix
}

// newDatastoreRule reads "HOST:PORT", and CIDRs of addresses that are refused otherwise.
func newDatastoreRule(address string, allowed []string) (datastoreRule, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return datastoreRule{}, err
	}
	rule := datastoreRule{host: host, port: port}
	for _, each := range allowed {
		prefix, err := netip.ParsePrefix(each)
		if err != nil {
			return rule, err
		}
		rule.allowed = append(rule.allowed, prefix)
	}
	return rule, nil
}

// admits returns whether an address may be dialled: none of this machine, of its link, or of a metadata service.
func (r datastoreRule) admits(address netip.Addr) bool {
	address = address.Unmap()
	for _, each := range r.allowed {
		if each.Contains(address) {
			return true
		}
	}
	if address.IsLoopback() || address.IsUnspecified() || address.IsLinkLocalUnicast() || address.IsMulticast() || address.Zone() != "" {
		return false
	}
	for _, each := range append(append([]netip.Prefix{}, metadata...), hidden...) {
		if each.Contains(address) {
			return false
		}
	}
	// 0.0.0.0/8 is this machine on Linux, and 240.0.0.0/4 has no hosts.
	return !address.Is4() || (address.As4()[0] != 0 && address.As4()[0] < 240)
}

// dial resolves the name, and connects to an address that it has checked.
func (r datastoreRule) dial(ctx context.Context) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, datastorePatience)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", r.host)
	if err != nil {
		return nil, err
	}
	failed := fmt.Errorf("%s has no address", r.host)
	for _, each := range found {
		if !r.admits(each) {
			failed = fmt.Errorf("%s is at %s, which is refused: an administrator can allow it by the key allowed of the Secret", r.host, each)
			continue
		}
		var dialer net.Dialer
		connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(each.Unmap().String(), r.port))
		if err == nil {
			return connection.(*net.TCPConn), nil
		}
		failed = err
	}
	return nil, failed
}

// forwardDatastore connects each client of a Unix socket to one datastore, until the context ends.
func forwardDatastore(ctx context.Context, socket string, rule datastoreRule, ready func()) error {
	// A link to another datastore, or the socket of a forwarder that was killed.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	defer listener.Close()
	if err := os.Chmod(socket, 0o600); err != nil {
		return err
	}
	ready()
	slots := make(chan struct{}, mostDatastoreConnections)
	return acceptAll(socket, listener.AcceptUnix, func(client *net.UnixConn) {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			server, err := rule.dial(ctx)
			if err != nil {
				client.Close()
				log.Print("the datastore is not reached: ", err)
				return
			}
			defer context.AfterFunc(ctx, func() { client.Close(); server.Close() })()
			forward(client, server, nil)
		}()
	})
}
