package main

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// streaming sends to every client until the test ends; the address is returned.
func streaming(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() { _ = streamTo(listener) }()
	return listener.Addr().String()
}

func TestEveryPartIsMeasured(t *testing.T) {
	folder := t.TempDir()
	found, err := measure(Measure{Seconds: 0.05, Folder: folder, Mebibytes: 2, Source: streaming(t)})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]float64{
		"hash": found.HashMebibytes, "calls": found.SystemCalls, "files": found.FileOperations,
		"write": found.WriteMebibytes, "read": found.ReadMebibytes, "network": found.NetworkMebibytes,
	} {
		if value <= 0 {
			t.Errorf("%s: %v", name, value)
		}
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) > mostSmall {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}

func TestWhatIsNotAskedForIsAbsent(t *testing.T) {
	found, err := measure(Measure{Seconds: 0.01})
	if err != nil || found.WriteMebibytes != 0 || found.NetworkMebibytes != 0 || found.FileOperations != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestARateIsPerSecond(t *testing.T) {
	found := rate(200*time.Millisecond, func() { time.Sleep(100 * time.Microsecond) })
	if found <= 0 || found > 10_000 {
		t.Errorf("%v in a second, and each takes a ten-thousandth of one or more", found)
	}
}

func TestAFailureIsNoFigure(t *testing.T) {
	for text, expected := range map[string]string{
		`{"seconds": 0}`: "`seconds` must be more than 0",
		`{"seconds": 0.01, "folder": "/does/not/exist", "mebibytes": 1}`: "files in /does/not/exist",
		`{"seconds": 0.01, "source": "127.0.0.1:1"}`:                     "network: ",
		`{`: "unexpected end",
	} {
		if err := measureJSON(text); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestASenderThatEndsEarlyIsNoFigure(t *testing.T) {
	if found, err := receive(listening(t, "short"), time.Second); err == nil {
		t.Errorf("%v", found)
	}
}
