package main

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func TestADatastoreIsNotOnThisMachineUnlessAllowed(t *testing.T) {
	plain := datastoreRule{}
	for _, each := range []string{
		"127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "0.1.2.3", "::", "169.254.169.254", "fe80::1",
		"224.0.0.1", "255.255.255.255", "ff02::1", "fd00:ec2::254", "100.100.100.200", "64:ff9b::7f00:1", "2002:7f00:1::",
		"::7f00:1", "192.0.0.192",
	} {
		if plain.admits(netip.MustParseAddr(each)) {
			t.Errorf("%s is dialled", each)
		}
	}
	for _, each := range []string{"10.1.2.3", "192.168.1.1", "93.184.216.34", "2606:2800::1", "fd12::1"} {
		if !plain.admits(netip.MustParseAddr(each)) {
			t.Errorf("%s is not dialled", each)
		}
	}
	one, err := newDatastoreRule("localhost:1", []string{"127.0.0.1/32"})
	if err != nil {
		t.Fatal(err)
	}
	if !one.admits(netip.MustParseAddr("::ffff:127.0.0.1")) || one.admits(netip.MustParseAddr("127.0.0.2")) {
		t.Error("not exactly what is allowed")
	}
	for _, each := range [][]string{{"localhost"}, {"a:1", "x"}, {"a:1", "10.0.0.1"}} {
		if _, err := newDatastoreRule(each[0], each[1:]); err == nil {
			t.Errorf("%q is a rule", each)
		}
	}
}

func TestASocketLeadsToOneDatastore(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			connection, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				// It answers when the client has ended its half.
				content, _ := io.ReadAll(connection)
				connection.Write(append([]byte("got "), content...))
			}()
		}
	}()
	ask := func(allowed ...string) string {
		rule, err := newDatastoreRule(server.Addr().String(), allowed)
		if err != nil {
			t.Fatal(err)
		}
		socket := filepath.Join(t.TempDir(), "s")
		// Of a forwarder that was killed.
		if err := os.Symlink("nowhere", socket); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ready := make(chan struct{})
		go forwardDatastore(ctx, socket, rule, func() { close(ready) })
		<-ready
		if found, err := os.Stat(socket); err != nil || found.Mode().Perm() != 0o600 {
			t.Error(found, err)
		}
		client, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		client.Write([]byte("words"))
		client.CloseWrite()
		content, _ := io.ReadAll(client)
		return string(content)
	}
	if found := ask("127.0.0.0/8"); found != "got words" {
		t.Errorf("%q", found)
	}
	if found := ask(); found != "" {
		t.Errorf("loopback was not refused: %q", found)
	}
}
