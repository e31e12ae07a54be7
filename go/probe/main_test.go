package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// listening answers with a word until the test ends; the address is returned.
func listening(t *testing.T, word string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = connection.Write([]byte(word + "\n"))
			_ = connection.Close()
		}
	}()
	return listener.Addr().String()
}

func TestOnlyWhoIsMeantCounts(t *testing.T) {
	target := listening(t, "one")
	found := tryAll([]Attempt{
		{ID: "right", Kind: "hello", Target: target, Word: "one", Control: true},
		{ID: "wrong", Kind: "hello", Target: target, Word: "two"},
		{ID: "open", Kind: "tcp", Target: target},
	}, time.Second, 10*time.Millisecond)
	for id, expected := range map[string]bool{"right": true, "wrong": false, "open": true} {
		if found[id].OK != expected {
			t.Errorf("%s: %+v", id, found[id])
		}
	}
	if said := found["wrong"].Said; said != `"one" answers` {
		t.Errorf("wrong says %q", said)
	}
}

func TestAControlIsTriedUntilItWorks(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := listener.Addr().String()
	_ = listener.Close()
	go func() { _ = serveAt(target, 400*time.Millisecond) }()
	found := tryAll([]Attempt{{ID: "late", Kind: "hello", Target: target, Word: "late", Control: true}}, 10*time.Second, 0)
	if !found["late"].OK {
		t.Errorf("late: %+v", found["late"])
	}
}

func serveAt(target string, after time.Duration) error {
	<-time.After(after)
	_, port, err := net.SplitHostPort(target)
	if err != nil {
		return err
	}
	return serve("late", port)
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for _, arguments := range [][]string{{}, {"try"}, {"try", "{"}, {"eat", "much"}, {"leave", "x"}, {"find", "x"}, {"sing", "it"}, {"serve", "word"}} {
		if run(arguments) == nil {
			t.Errorf("%v goes through", arguments)
		}
	}
}

func TestTheDefaultRouteNamesTheGateway(t *testing.T) {
	const head = "Iface\tDestination\tGateway\tFlags\n"
	for routes, expected := range map[string]string{
		head + "eth0\t0100000A\t00000000\t0005\neth0\t00000000\t0103740A\t0003\n": "10.116.3.1",
		head + "eth0\t00000000\t00000000\t0001\n":                                 "",
		head: "",
	} {
		if found, err := defaultGateway(routes); found != expected || (err == nil) != (expected != "") {
			t.Errorf("%q: %q, %v", routes, found, err)
		}
	}
}

func TestItSeesItself(t *testing.T) {
	inside := lookInside()
	if inside.CapBnd == "" || inside.Version == "" || inside.NoNewPrivs == "" {
		t.Errorf("%+v", inside)
	}
}

func TestWhatOneLeavesTheNextFinds(t *testing.T) {
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, "lost+found", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if found := lookThrough(folder, "word"); found.Count != 0 || found.Found || found.Unread != "" {
		t.Errorf("an empty volume: %+v", found)
	}
	if err := run([]string{"leave", folder, "word"}); err != nil {
		t.Fatal(err)
	}
	if found := lookThrough(folder, "word"); found.Count != 1 || !found.Found || found.Files[0] != "word" {
		t.Errorf("a used volume: %+v", found)
	}
	if found := lookThrough(folder, "another"); found.Count != 1 || found.Found {
		t.Errorf("another pod's: %+v", found)
	}
	if found := lookThrough(filepath.Join(folder, "nowhere"), "word"); found.Unread == "" {
		t.Errorf("nothing: %+v", found)
	}
}
