package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// read returns the next bytes of a log that is followed, as many as those that are expected.
func read(t *testing.T, from io.Reader, expected string) {
	t.Helper()
	found := make([]byte, len(expected))
	if _, err := io.ReadFull(from, found); err != nil {
		t.Fatal(err)
	}
	if string(found) != expected {
		t.Fatalf("got %q, not %q", found, expected)
	}
}

func appended(t *testing.T, path, text string) {
	t.Helper()
	log, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestALogIsFollowedThroughItsRotations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	out, in := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- follow(ctx, path, in) }()
	appended(t, path, "one\n")
	read(t, out, "one\n")
	appended(t, path, "two\n")
	read(t, out, "two\n")
	for _, next := range []string{"three\n", "four\n"} {
		appended(t, path, "last ")
		if err := os.Rename(path, path+"."+next[:3]); err != nil {
			t.Fatal(err)
		}
		appended(t, path+"."+next[:3], "words ")
		appended(t, path, next)
		read(t, out, "last words "+next)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestALogThatIsThereIsReadFromItsBeginning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	appended(t, path, "before\n")
	out, in := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = follow(ctx, path, in) }()
	read(t, out, "before\n")
}

func TestAFolderThatIsMissingIsAnError(t *testing.T) {
	if err := follow(context.Background(), filepath.Join(t.TempDir(), "none", "audit.log"), io.Discard); err == nil {
		t.Fatal("no error")
	}
}
