package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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

// rotated renames a log as the API server does, and begins the next one; it returns the path of the former one.
func rotated(t *testing.T, path string, number int, next string) string {
	t.Helper()
	former := fmt.Sprintf("%s-2026-11-27T13-00-00.%03d.log", strings.TrimSuffix(path, ".log"), number)
	if err := os.Rename(path, former); err != nil {
		t.Fatal(err)
	}
	appended(t, path, next)
	return former
}

// following follows a log until the test ends, which fails if that has failed.
func following(t *testing.T, path string) io.Reader {
	t.Helper()
	return inBackground(t, func(ctx context.Context, out io.Writer) error { return follow(ctx, path, out) })
}

// inBackground returns what a function writes until the test ends.
func inBackground(t *testing.T, act func(ctx context.Context, out io.Writer) error) io.Reader {
	t.Helper()
	out, in := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := act(ctx, in)
		in.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return out
}

// writer is a function that is an io.Writer.
type writer func(chunk []byte) error

func (w writer) Write(chunk []byte) (int, error) { return len(chunk), w(chunk) }

func TestALogIsFollowedThroughItsRotations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	out := following(t, path)
	appended(t, path, "one\n")
	read(t, out, "one\n")
	appended(t, path, "two\n")
	read(t, out, "two\n")
	for number, next := range []string{"three\n", "four\n"} {
		appended(t, path, "last words ")
		rotated(t, path, number, next)
		read(t, out, "last words "+next)
	}
}

func TestRotationsThatAreSeenAtOnceArePrintedInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	appended(t, path, "one\n")
	out := following(t, path)
	// The rest of this line is not read yet: no event is handled.
	read(t, out, "o")
	rotated(t, path, 1, "two\n")
	rotated(t, path, 2, "three\n")
	read(t, out, "ne\ntwo\nthree\n")
	// Their events come one after the other, and print nothing again.
	rotated(t, path, 3, "four\n")
	read(t, out, "four\n")
}

func TestAFileThatIsRemovedIsPrintedToItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	appended(t, path, "one\n")
	out := following(t, path)
	read(t, out, "o")
	appended(t, path, "two\n")
	if err := os.Remove(rotated(t, path, 1, "three\n")); err != nil {
		t.Fatal(err)
	}
	read(t, out, "ne\ntwo\nthree\n")
}

func TestEventsThatTheKernelDropsLoseAndRepeatNothing(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "audit.log")
	appended(t, path, "one\n")
	out := following(t, path)
	read(t, out, "o")
	overflow(t, folder)
	rotated(t, path, 1, "two\n")
	rotated(t, path, 2, "three\n")
	read(t, out, "ne\ntwo\nthree\n")
	rotated(t, path, 3, "four\n")
	read(t, out, "four\n")
}

// overflow makes more events in a folder than the kernel keeps.
func overflow(t *testing.T, folder string) {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	var others [2]*os.File
	for each := range others {
		if others[each], err = os.Create(filepath.Join(folder, strconv.Itoa(each))); err != nil {
			t.Fatal(err)
		}
		defer others[each].Close()
	}
	// The kernel merges events of one file that follow each other; the program has read some thousand.
	for number := range most + 8192 {
		if _, err := others[number%2].WriteString("."); err != nil {
			t.Fatal(err)
		}
	}
}

// In gVisor, the writes of the API server cause no event in the container that prints its log.
func TestALogIsFollowedWithoutEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	ticks := make(chan time.Time, 4)
	out := inBackground(t, func(ctx context.Context, out io.Writer) error {
		return followed(ctx, path, out, wakes{ticks: ticks})
	})
	appended(t, path, "one\n")
	ticks <- time.Time{}
	read(t, out, "one\n")
	rotated(t, path, 1, "two\n")
	rotated(t, path, 2, "three\n")
	ticks <- time.Time{}
	read(t, out, "two\nthree\n")
	// A tick without a change prints nothing again.
	ticks <- time.Time{}
	appended(t, path, "four\n")
	ticks <- time.Time{}
	read(t, out, "four\n")
}

func TestOnlyRegularFilesAreRead(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	appended(t, elsewhere, "secret\n")
	for name, placed := range map[string]func(path string) error{
		"a link":             func(path string) error { return os.Symlink(elsewhere, path) },
		"a link to a device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"a FIFO":             func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a folder":           func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			if err := placed(path); err != nil {
				t.Fatal(err)
			}
			if found, err := opened(path); found != nil || err != nil {
				t.Fatalf("got %v and %v", found, err)
			}
			out := following(t, path)
			rotated(t, path, 1, "one\n")
			read(t, out, "one\n")
		})
	}
}

func TestWhatComesBeforeTheEndIsPrinted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	appended(t, path, "one\n")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var out bytes.Buffer
	err := follow(ctx, path, writer(func(chunk []byte) error {
		if out.Len() == 0 {
			rotated(t, path, 1, "two\n")
			rotated(t, path, 2, "three\n")
			stop()
		}
		_, err := out.Write(chunk)
		return err
	}))
	if err != nil || out.String() != "one\ntwo\nthree\n" {
		t.Fatalf("got %q and %v", out.String(), err)
	}
}

func TestACopyEndsWithTheProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	appended(t, path, "")
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	printed := 0
	err := follow(ctx, path, writer(func(chunk []byte) error {
		stop()
		printed += len(chunk)
		return nil
	}))
	if err != nil || printed > lastBytes+chunkBytes {
		t.Fatalf("printed %d bytes, and %v", printed, err)
	}
}

func TestAContainerThatRestartsBeginsWithTheOldestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	appended(t, path, "one\n")
	rotated(t, path, 1, "two\n")
	rotated(t, path, 2, "three\n")
	read(t, following(t, path), "one\ntwo\nthree\n")
}

func TestAFolderThatIsMissingIsAnError(t *testing.T) {
	if err := follow(context.Background(), filepath.Join(t.TempDir(), "none", "audit.log"), io.Discard); err == nil {
		t.Fatal("no error")
	}
}
