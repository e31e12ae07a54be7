package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tenantry.dev/hosted/internal/datastore"
	"tenantry.dev/hosted/internal/settings"
)

const (
	ours   = "v1.36.3"
	prefix = "/registry/"
)

var about = Header{Kubernetes: ours, UID: "uid-1"}

func given(t *testing.T) settings.Datastore {
	return settings.Datastore{File: filepath.Join(t.TempDir(), "state.db"), MaxBytes: 64 << 20}
}

// opened returns the keys of a database.
func opened(t *testing.T, at settings.Datastore) (*datastore.Store, Keys) {
	t.Helper()
	store, err := datastore.Open(t.Context(), at, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	client := store.Client()
	return store, Keys{KV: client.KV, Lease: client.Lease, Prefix: prefix}
}

func (k Keys) create(t *testing.T, key, value string, options ...clientv3.OpOption) int64 {
	t.Helper()
	answer, err := k.KV.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision(k.Prefix+key), "=", 0)).
		Then(clientv3.OpPut(k.Prefix+key, value, options...)).Commit()
	if err != nil || !answer.Succeeded {
		t.Fatalf("%s: %+v, %v", key, answer, err)
	}
	return answer.Header.Revision
}

func (k Keys) remove(t *testing.T, key string) int64 {
	t.Helper()
	found, err := k.KV.Get(t.Context(), k.Prefix+key)
	if err != nil || len(found.Kvs) != 1 {
		t.Fatal(key, err)
	}
	answer, err := k.KV.Txn(t.Context()).
		If(clientv3.Compare(clientv3.ModRevision(k.Prefix+key), "=", found.Kvs[0].ModRevision)).
		Then(clientv3.OpDelete(k.Prefix + key)).Else(clientv3.OpGet(k.Prefix + key)).Commit()
	if err != nil || !answer.Succeeded {
		t.Fatal(key, err)
	}
	return answer.Header.Revision
}

// content returns the objects, and the smallest revision of one.
func (k Keys) content(t *testing.T) (map[string]string, int64) {
	t.Helper()
	answer, err := k.KV.Get(t.Context(), k.Prefix, clientv3.WithRange(clientv3.GetPrefixRangeEnd(k.Prefix)))
	if err != nil {
		t.Fatal(err)
	}
	found, least := map[string]string{}, answer.Header.Revision
	for _, each := range answer.Kvs {
		if name := strings.TrimPrefix(string(each.Key), k.Prefix); name != health {
			found[name] = fmt.Sprintf("%s lease %d", each.Value, each.Lease)
			least = min(least, each.ModRevision)
		}
	}
	return found, least
}

func taken(t *testing.T, keys Keys) []byte {
	t.Helper()
	var to bytes.Buffer
	if _, err := keys.Take(t.Context(), about, &to); err != nil {
		t.Fatal(err)
	}
	return to.Bytes()
}

func stored(t *testing.T, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func restored(at settings.Datastore, content []byte) error {
	return datastore.Replace(context.Background(), at, 1, func(client *clientv3.Client, _ string) error {
		from, err := NewReader(bytes.NewReader(content))
		if err != nil {
			return err
		}
		defer from.Close()
		return Keys{KV: client.KV, Lease: client.Lease, Prefix: prefix}.Restore(context.Background(), from)
	})
}

func equal(one, other map[string]string) bool { return fmt.Sprint(one) == fmt.Sprint(other) }

func TestARestoredDatabaseHasTheObjectsOfTheSnapshotAtLaterRevisions(t *testing.T) {
	at := given(t)
	store, keys := opened(t, at)
	noise := rand.NewChaCha8([32]byte{})
	// More than a page, and one of the largest.
	for number := range 2*pageKeys + 3 {
		value := make([]byte, 10)
		noise.Read(value)
		keys.create(t, fmt.Sprintf("configmaps/n/%05d", number), string(value))
	}
	large := make([]byte, 3<<19)
	noise.Read(large)
	keys.create(t, "secrets/n/large", string(large))
	lease, err := keys.Lease.Grant(t.Context(), leaseSeconds)
	if err != nil {
		t.Fatal(err)
	}
	keys.create(t, "events/n/e", "event", clientv3.WithLease(lease.ID))
	wanted, _ := keys.content(t)
	keys.create(t, "masterleases/192.0.2.1", "its own", clientv3.WithLease(lease.ID))
	content := taken(t, keys)
	for number := range 5 {
		keys.remove(t, fmt.Sprintf("configmaps/n/%05d", number))
	}
	last := keys.create(t, "configmaps/n/later", "later")
	store.Close()

	if err := restored(at, content); err != nil {
		t.Fatal(err)
	}
	_, keys = opened(t, at)
	found, least := keys.content(t)
	if !equal(found, wanted) {
		t.Errorf("%d keys, wanted %d", len(found), len(wanted))
	}
	if least <= last {
		t.Errorf("revision %d was handed out for another object: the last was %d", least, last)
	}
	for _, known := range []int64{last, last - 3, 2} {
		if _, err := keys.KV.Get(t.Context(), keys.Prefix+"configmaps/n/00000", clientv3.WithRev(known)); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("a client at revision %d goes on: %v", known, err)
		}
	}
	for _, left := range []string{".new", ".new-wal", ".whole", ".whole-wal"} {
		if _, err := os.Stat(at.File + left); err == nil {
			t.Errorf("%s is left", left)
		}
	}
	// It goes on, and can be restored again.
	if now := keys.create(t, "configmaps/n/more", "x"); now <= least {
		t.Errorf("revision %d", now)
	}
}

func TestASnapshotIsOfOneRevisionWhileWritesGoOn(t *testing.T) {
	_, keys := opened(t, given(t))
	for number := range 300 {
		keys.create(t, fmt.Sprintf("configmaps/n/%05d", number), "first")
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		// Always one of a pair is there.
		for number := 0; ; number++ {
			select {
			case <-stop:
				return
			default:
			}
			keys.create(t, fmt.Sprintf("configmaps/z/%05d", number), "x")
			if number > 0 {
				keys.remove(t, fmt.Sprintf("configmaps/z/%05d", number-1))
			}
		}
	}()
	for range 3 {
		from, err := NewReader(bytes.NewReader(taken(t, keys)))
		if err != nil {
			t.Fatal(err)
		}
		first, moving := 0, 0
		for {
			entry, err := from.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(entry.Key, "configmaps/z/") {
				moving++
			} else {
				first++
			}
		}
		if first != 300 || moving > 2 {
			t.Errorf("%d that stay, and %d that move", first, moving)
		}
		from.Close()
	}
	close(stop)
	<-stopped
}

func sample(t *testing.T) []byte {
	t.Helper()
	_, keys := opened(t, given(t))
	for number := range 40 {
		keys.create(t, fmt.Sprintf("configmaps/n/%05d", number), strings.Repeat(fmt.Sprint(number), 30))
	}
	return taken(t, keys)
}

func TestAFileCutShortAnywhereIsRefused(t *testing.T) {
	content := sample(t)
	if _, err := Verify(stored(t, content), ours); err != nil {
		t.Fatal(err)
	}
	for length := range content {
		if _, err := Verify(stored(t, content[:length]), ours); err == nil {
			t.Errorf("the first %d bytes of %d are taken for a snapshot", length, len(content))
		}
	}
	if _, err := Verify(stored(t, append(bytes.Clone(content), "more"...)), ours); err == nil {
		t.Error("something follows")
	}
}

// Some bits of zstd's own have no meaning.
func TestAChangedBitIsNoticedOrChangesNothing(t *testing.T) {
	content := sample(t)
	wanted, err := contentOf(content)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for at := range 8 * len(content) {
		changed := bytes.Clone(content)
		changed[at/8] ^= 1 << (at % 8)
		found, err := contentOf(changed)
		if err != nil {
			refused++
		} else if found != wanted {
			t.Errorf("bit %d of byte %d of %d is changed: %s", at%8, at/8, len(content), found)
		}
	}
	if refused < 7*len(content) {
		t.Errorf("only %d of %d changes are noticed", refused, 8*len(content))
	}
}

// contentOf returns everything in a snapshot.
func contentOf(content []byte) (string, error) {
	from, err := NewReader(bytes.NewReader(content))
	if err != nil {
		return "", err
	}
	defer from.Close()
	found := fmt.Sprint(from.Header)
	for {
		entry, err := from.Next()
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return "", err
		}
		found += fmt.Sprint(entry)
	}
}

func TestADamagedSnapshotChangesNothing(t *testing.T) {
	at := given(t)
	store, keys := opened(t, at)
	keys.create(t, "configmaps/n/kept", "1")
	content := taken(t, keys)
	store.Close()
	if err := restored(at, content[:len(content)-5]); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Fatal(err)
	}
	_, keys = opened(t, at)
	if found, _ := keys.content(t); found["configmaps/n/kept"] == "" {
		t.Error("the object is lost")
	}
	if _, err := os.Stat(at.File + ".new"); err == nil {
		t.Error("the new database is left")
	}
}

// made returns a snapshot that was made with a header, of any entries.
func made(t *testing.T, header Header, entries ...Entry) []byte {
	t.Helper()
	var to bytes.Buffer
	found, err := newWriter(&to, header)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if err := found.add(entry); err != nil {
			t.Fatal(err)
		}
	}
	if err := found.end(); err != nil {
		t.Fatal(err)
	}
	return to.Bytes()
}

func TestWhatCannotBeUsedIsRefusedWithASentence(t *testing.T) {
	good := Header{Format: Format, Kubernetes: ours, UID: "u", Revision: 7}
	cases := map[string]struct {
		change func(*Header)
		words  string
	}{
		"the same":        {func(*Header) {}, ""},
		"an older patch":  {func(h *Header) { h.Kubernetes = "v1.36.1" }, ""},
		"an older one":    {func(h *Header) { h.Kubernetes = "v1.30.9" }, ""},
		"a later one":     {func(h *Header) { h.Kubernetes = "v1.37.0" }, "is of Kubernetes v1.37.0, and v1.36.3 does not read its objects: restore it into a control plane of v1.37.0 or a later version"},
		"a later major":   {func(h *Header) { h.Kubernetes = "v2.0.0" }, "is of Kubernetes v2.0.0"},
		"no version":      {func(h *Header) { h.Kubernetes = "" }, "damaged"},
		"a later format":  {func(h *Header) { h.Format = 2 }, "has format 2, and this program reads formats up to 1"},
		"no revision":     {func(h *Header) { h.Revision = 0 }, "no snapshot has"},
		"a huge revision": {func(h *Header) { h.Revision = 1<<62 + 1 }, "no snapshot has"},
	}
	for name, each := range cases {
		header := good
		each.change(&header)
		_, err := Verify(stored(t, made(t, header)), ours)
		if (err == nil) != (each.words == "") || (err != nil && !strings.Contains(err.Error(), each.words)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, other := range []string{"", "x", "PK\x03\x04 something else that is long enough"} {
		if _, err := Verify(stored(t, []byte(other)), ours); !errors.Is(err, ErrForeign) {
			t.Errorf("%q: %v", other, err)
		}
	}
}

// packed returns the bytes as a snapshot would have them.
func packed(t *testing.T, parts ...[]byte) []byte {
	t.Helper()
	var to bytes.Buffer
	to.WriteString(magic)
	encoder, err := zstd.NewWriter(&to)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		encoder.Write(part)
	}
	encoder.Close()
	return to.Bytes()
}

func TestALengthAllocatesNothingBeforeItIsChecked(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xf0}
	header := []byte(`{"format":1,"kubernetes":"v1.36.3","revision":3,"count":1}`)
	length := []byte{0, 0, 0, byte(len(header))}
	cases := map[string][]byte{
		"header": packed(t, huge),
		"key":    packed(t, length, header, []byte{kindKept}, huge),
		"value":  packed(t, length, header, []byte{kindKept, 0, 0, 0, 1, 'k'}, huge),
	}
	for name, content := range cases {
		file := stored(t, content)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Verify(file, ours)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "4294967280 bytes") {
			t.Errorf("%s: %v", name, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
			t.Errorf("%s: %d bytes", name, used)
		}
	}
}

func TestEntriesComeInOrderAndOnce(t *testing.T) {
	header := []byte(`{"format":1,"kubernetes":"v1.36.3","revision":3,"count":2}`)
	entry := func(key string) []byte { return append([]byte{kindKept, 0, 0, 0, 1}, key+"\x00\x00\x00\x00"...) }
	for _, keys := range [][]string{{"b", "a"}, {"a", "a"}, {"\x00"}} {
		parts := [][]byte{{0, 0, 0, byte(len(header))}, header}
		for _, key := range keys {
			parts = append(parts, entry(key))
		}
		if _, err := Verify(stored(t, packed(t, parts...)), ours); err == nil || !strings.Contains(err.Error(), "the key") {
			t.Errorf("%q: %v", keys, err)
		}
	}
}

func TestAProcessGivesSnapshotsWhileItHasTheFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	lock, err := Lock(true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(false); !errors.Is(err, ErrRuns) {
		t.Errorf("two processes have the folder: %v", err)
	}
	_, keys := opened(t, settings.Datastore{File: "state.db", MaxBytes: 64 << 20})
	keys.create(t, "configmaps/n/a", "1")
	ctx, cancel := context.WithCancel(t.Context())
	// What a process that was killed has left.
	if err := os.WriteFile(Socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Serve(ctx, keys, about); err != nil {
		t.Fatal(err)
	}
	found, err := Write("file", ours, func(made io.Writer) error { return Fetch(t.Context(), made) })
	if err != nil || found.Count != 1 || found.UID != about.UID {
		t.Fatalf("%+v, %v", found, err)
	}
	for file, mode := range map[string]os.FileMode{"file": 0o600, Socket: 0o600 | os.ModeSocket} {
		if state, err := os.Stat(file); err != nil || state.Mode() != mode {
			t.Errorf("%s: %v, %v", file, state.Mode(), err)
		}
	}
	cancel()
	lock.Close()
	again, err := Lock(false)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if _, err := Write("other", ours, func(made io.Writer) error { _, err := made.Write([]byte(magic)); return err }); err == nil {
		t.Error("half a snapshot is kept")
	}
	left, _ := filepath.Glob(".snapshot-*")
	if _, err := os.Stat("other"); err == nil || len(left) != 0 {
		t.Errorf("something is left: %v", left)
	}
}
