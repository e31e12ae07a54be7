package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A shelf has the keeper of a volume, and a client with the operator's certificate.
type shelf struct {
	volume, url string
	client      *http.Client
	own         *keeper
}

func shelved(t *testing.T, change func(*keeper)) shelf {
	t.Helper()
	p := started(t)
	own := &keeper{volume: t.TempDir(), folder: "snapshots"}
	if change != nil {
		change(own)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go own.serve(listener, p.identity)
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: p.client}}
	return shelf{own.volume, "https://" + listener.Addr().String(), client, own}
}

func (s shelf) ask(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	return s.askWith(t, method, path, body, hex.EncodeToString(sum[:]))
}

func (s shelf) askWith(t *testing.T, method, path, body, sum string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(method, s.url+path, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(checksum, sum)
	answer, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(got)
}

func TestSnapshotsAreStoredListedNamedAndDeleted(t *testing.T) {
	s := shelved(t, nil)
	if status, got := s.ask(t, "PUT", "/files/on-its-way", "all objects"); status != 200 {
		t.Fatal(status, got)
	}
	if status, got := s.ask(t, "POST", "/files/on-its-way/name/a.snapshot", ""); status != 200 {
		t.Fatal(status, got)
	}
	if _, got := s.ask(t, "GET", "/files", ""); got != `[{"name":"a.snapshot","size":11}]`+"\n" {
		t.Fatal(got)
	}
	if status, got := s.ask(t, "GET", "/files/a.snapshot", ""); status != 200 || got != "all objects" {
		t.Fatal(status, got)
	}
	if about, err := os.Stat(filepath.Join(s.volume, "snapshots", "a.snapshot")); err != nil || about.Mode().Perm() != 0o600 {
		t.Fatal(about, err)
	}
	for range 2 {
		if status, got := s.ask(t, "DELETE", "/files/a.snapshot", ""); status != 200 {
			t.Fatal(status, got)
		}
	}
	if status, _ := s.ask(t, "GET", "/files/a.snapshot", ""); status != 404 {
		t.Fatal(status)
	}
}

func TestASnapshotThatWasChangedOnItsWayIsNotKept(t *testing.T) {
	s := shelved(t, nil)
	status, got := s.askWith(t, "PUT", "/files/a.snapshot", "all objects", strings.Repeat("0", 64))
	if status != 422 || !strings.Contains(got, "checksum differs") {
		t.Fatal(status, got)
	}
	if _, got := s.ask(t, "GET", "/files", ""); got != "[]\n" {
		t.Fatal(got)
	}
}

// A process that its users have taken over writes to the same volume.
func TestNoLinkLeadsOutOfTheVolume(t *testing.T) {
	s := shelved(t, nil)
	secret := filepath.Join(t.TempDir(), "tls.key")
	if err := os.WriteFile(secret, []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(s.volume, "snapshots")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(folder, "a.snapshot")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(folder, "b.snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.snapshot", "b.snapshot"} {
		if status, got := s.ask(t, "GET", "/files/"+name, ""); status == 200 || strings.Contains(got, "key") {
			t.Fatal(name, status, got)
		}
	}
	if _, got := s.ask(t, "GET", "/files", ""); got != "[]\n" {
		t.Fatal(got)
	}
	if status, got := s.ask(t, "PUT", "/files/a.snapshot", "all objects"); status != 200 {
		t.Fatal(status, got)
	}
	if kept, err := os.ReadFile(secret); err != nil || string(kept) != "key" {
		t.Fatal(string(kept), err)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(secret), folder); err != nil {
		t.Fatal(err)
	}
	if status, got := s.ask(t, "GET", "/files/tls.key", ""); status == 200 {
		t.Fatal(status, got)
	}
}

func TestNamesAreNoPaths(t *testing.T) {
	s := shelved(t, nil)
	if err := os.WriteFile(filepath.Join(s.volume, "state.db"), []byte("keys"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/files/..%2Fstate.db", "/files/%2e%2e/state.db", "/files/.hidden", "/files/a%00b", "/state.db"} {
		if status, got := s.ask(t, "GET", path, ""); status == 200 || strings.Contains(got, "keys") {
			t.Error(path, status, got)
		}
	}
}

func TestAVolumeWithoutRoomKeepsNothing(t *testing.T) {
	s := shelved(t, func(k *keeper) { k.reserve = 1 << 62 })
	if status, got := s.ask(t, "PUT", "/files/a.snapshot", "x"); status != 422 || !strings.Contains(got, "no room") {
		t.Fatal(status, got)
	}
}

func TestACommandThatFailsIsToldByItsLastLine(t *testing.T) {
	s := shelved(t, func(k *keeper) { k.program = "/bin/ls" })
	s.ask(t, "PUT", "/files/a.snapshot", "x")
	if status, got := s.ask(t, "POST", "/files/a.snapshot/verify", ""); status != 422 || !strings.Contains(got, "verify") {
		t.Fatal(status, got)
	}
	// Without settings, there is no control plane.
	if status, got := s.ask(t, "POST", "/files/a.snapshot/restore", ""); status != 422 || !strings.Contains(got, "not a request") {
		t.Fatal(status, got)
	}
}

func TestOnlyTheOperatorOfThisPodIsAnswered(t *testing.T) {
	s, other := shelved(t, nil), started(t)
	foreign := s.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	foreign.Certificates = other.client.Certificates
	without := foreign.Clone()
	without.Certificates = nil
	for name, config := range map[string]*tls.Config{"of another Pod": foreign, "without a certificate": without} {
		client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}
		if answer, err := client.Get(s.url + "/files"); err == nil {
			answer.Body.Close()
			t.Errorf("%s: not rejected: %s", name, answer.Status)
		}
	}
}

func TestAKeeperEndsWhenTheOperatorIsSilent(t *testing.T) {
	s := shelved(t, nil)
	s.ask(t, "GET", "/files", "")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s.own.idle(ctx, 10*time.Millisecond)
	if ctx.Err() != nil {
		t.Fatal("it does not end")
	}
}

func TestAKeeperWaitsForItsFirstRequest(t *testing.T) {
	const after = 10 * time.Millisecond
	begun := time.Now()
	(&keeper{}).idle(t.Context(), after)
	if took := time.Since(begun); took < after {
		t.Fatalf("it ends after %s", took)
	}
}
