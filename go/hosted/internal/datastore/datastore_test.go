package datastore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/k3s-io/kine/pkg/server"

	"tenantry.dev/hosted/internal/settings"
)

const patience = 20 * time.Second

// opened returns the client of a new database in a folder.
func opened(t *testing.T, folder string) (*Store, *kubernetes.Client) {
	t.Helper()
	given := settings.Datastore{File: filepath.Join(folder, "state.db"), MaxBytes: 64 << 20}
	store, err := Open(t.Context(), given, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	// The API server checks it once in a process. A test that ends before the check does would end it for all others.
	deadline := time.Now().Add(patience)
	for !feature.DefaultFeatureSupportChecker.Supports(storage.RequestWatchProgress) {
		if time.Now().After(deadline) {
			t.Fatal("lists do not come from caches")
		}
		time.Sleep(time.Millisecond)
	}
	client, err := newETCD3Client(storagebackend.TransportConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return store, client
}

func put(t *testing.T, client *kubernetes.Client, key, value string, revision int64) int64 {
	t.Helper()
	answer, err := client.OptimisticPut(t.Context(), key, []byte(value), revision, kubernetes.PutOptions{GetOnFailure: revision != 0})
	if err != nil || !answer.Succeeded {
		t.Fatalf("%s after %d: %+v, %v", key, revision, answer, err)
	}
	return answer.Revision
}

func next(t *testing.T, answers clientv3.WatchChan) clientv3.WatchResponse {
	t.Helper()
	select {
	case answer := <-answers:
		return answer
	case <-time.After(patience):
		t.Fatal("the watch has nothing")
	}
	panic("unreachable")
}

// An upgrade that makes clients in another way, or renames the variable, must fail here, and not at a customer.
func TestTheStorageOfAnAPIServerIsTheDatabase(t *testing.T) {
	store, _ := opened(t, t.TempDir())
	codec := runtime.NewCodec(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), scheme.Codecs.UniversalDeserializer())
	config := storagebackend.NewDefaultConfig("/registry", codec)
	// No server is there.
	config.Transport.ServerList = []string{"unix://none"}
	config.CompactionInterval = 0
	of := config.ForResource(schema.GroupResource{Resource: "configmaps"})
	maps, destroy, err := factory.Create(*of,
		func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} }, "/configmaps")
	if err != nil {
		t.Fatal(err)
	}
	defer destroy()
	if probe, err := factory.CreateProber(of.Config); err != nil || probe.Probe(t.Context()) != nil {
		t.Errorf("the datastore is not healthy: %v", err)
	}
	created := &corev1.ConfigMap{}
	given := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n"}}
	if err := maps.Create(t.Context(), "/configmaps/n/a", given, created, 60); err != nil {
		t.Fatal(err)
	}
	watching, err := maps.Watch(t.Context(), "/configmaps/", storage.ListOptions{
		ResourceVersion: created.ResourceVersion, Predicate: storage.Everything, Recursive: true, ProgressNotify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	change := func(found runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		found.(*corev1.ConfigMap).Data = map[string]string{"changed": "yes"}
		return found, nil, nil
	}
	if err := maps.GuaranteedUpdate(t.Context(), "/configmaps/n/a", &corev1.ConfigMap{}, false, nil, change, nil); err != nil {
		t.Fatal(err)
	}
	gone := &corev1.ConfigMap{}
	if err := maps.Delete(t.Context(), "/configmaps/n/a", gone, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, wanted := range []watch.EventType{watch.Modified, watch.Deleted} {
		event := <-watching.ResultChan()
		if event.Type != wanted || event.Object.(*corev1.ConfigMap).Data["changed"] != "yes" {
			t.Errorf("%s %+v, wanted %s", event.Type, event.Object, wanted)
		}
	}
	// A list from a cache waits for this.
	for {
		if err := maps.RequestWatchProgress(t.Context()); err != nil {
			t.Fatal(err)
		}
		event := <-watching.ResultChan()
		found, err := meta.Accessor(event.Object)
		if err != nil || event.Type != watch.Bookmark {
			t.Fatalf("%+v, %v", event, err)
		}
		if revision(t, found.GetResourceVersion()) >= revision(t, gone.ResourceVersion) {
			break
		}
	}
	store.Close()
	if err := maps.Get(t.Context(), "/configmaps/n/a", storage.GetOptions{}, gone); err == nil || storage.IsNotFound(err) {
		t.Errorf("a closed datastore answers: %v", err)
	}
}

func revision(t *testing.T, text string) int64 {
	t.Helper()
	found, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Whenever a watch begins, it gets each change once, in order, and its progress comes after everything before it.
func TestEveryWatchGetsEveryChangeOnce(t *testing.T) {
	_, client := opened(t, t.TempDir())
	const kinds, each, watches = 3, 60, 12
	var first int64
	for kind := range kinds {
		first = put(t, client, fmt.Sprintf("/k%d/0", kind), "0", 0)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var group sync.WaitGroup
	for number := range watches {
		begin := first
		group.Go(func() {
			prefix := fmt.Sprintf("/k%d/", number%kinds)
			at, seen := begin, 0
			// Half of the watches end in the middle; the next one begins where that one was.
			for _, until := range []int{each / (1 + number*2/watches), each} {
				watching, end := context.WithCancel(ctx)
				last := int64(0)
				for answer := range client.Watch(
					watching, prefix, clientv3.WithPrefix(), clientv3.WithRev(at+1), clientv3.WithProgressNotify()) {
					if answer.IsProgressNotify() && answer.Header.Revision < last {
						t.Errorf("progress %d after %d", answer.Header.Revision, last)
					}
					last = max(last, answer.Header.Revision)
					for _, event := range answer.Events {
						seen, at = seen+1, event.Kv.ModRevision
						if wanted := fmt.Sprintf("%s%d", prefix, seen); string(event.Kv.Key) != wanted {
							t.Errorf("%s, wanted %s", event.Kv.Key, wanted)
						}
					}
					if seen >= until {
						break
					}
				}
				end()
				if seen == each {
					return
				}
			}
			t.Errorf("%s ended after %d of %d: %v", prefix, seen, each, ctx.Err())
		})
	}
	for kind := range kinds {
		group.Go(func() {
			for number := range each {
				key := fmt.Sprintf("/k%d/%d", kind, number+1)
				if _, err := client.OptimisticPut(ctx, key, []byte("1"), 0, kubernetes.PutOptions{}); err != nil {
					t.Error(err)
				}
				if number%5 == 0 {
					client.RequestProgress(ctx)
				}
			}
		})
	}
	group.Wait()
}

func TestProgressGoesOnlyToWatchesOfTheClientThatAskedForIt(t *testing.T) {
	_, client := opened(t, t.TempDir())
	other, err := newETCD3Client(storagebackend.TransportConfig{})
	if err != nil {
		t.Fatal(err)
	}
	silent := client.Watch(t.Context(), "/a", clientv3.WithRev(1))
	foreign := other.Watch(t.Context(), "/a", clientv3.WithRev(1), clientv3.WithProgressNotify())
	asked := client.Watch(t.Context(), "/a", clientv3.WithRev(1), clientv3.WithProgressNotify())
	put(t, client, "/a", "1", 0)
	for _, answers := range []clientv3.WatchChan{silent, foreign, asked} {
		if answer := next(t, answers); len(answer.Events) != 1 {
			t.Fatalf("%+v", answer)
		}
	}
	var answer clientv3.WatchResponse
	for !answer.IsProgressNotify() {
		// There is none as long as the watch is before the hub.
		if err := client.RequestProgress(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case answer = <-asked:
		case <-time.After(time.Millisecond):
		}
	}
	for _, answers := range []clientv3.WatchChan{silent, foreign} {
		select {
		case answer := <-answers:
			t.Errorf("%+v", answer)
		default:
		}
	}
	other.Close()
	if _, open := <-foreign; open {
		t.Error("a watch outlives its client")
	}
}

func TestAWatchBeforeACompactionHasToReadAgain(t *testing.T) {
	_, client := opened(t, t.TempDir())
	last := put(t, client, "/a", "1", 0)
	log := client.Watcher.(*watcher).hub.log.(interface {
		SetCompactRevision(context.Context, int64) error
	})
	if err := log.SetCompactRevision(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	answers := client.Watch(t.Context(), "/a", clientv3.WithRev(last-1))
	if answer := next(t, answers); answer.CompactRevision != last || answer.Err() == nil {
		t.Errorf("%+v", answer)
	}
	if _, open := <-answers; open {
		t.Error("the watch goes on")
	}
	answers = client.Watch(t.Context(), "/a", clientv3.WithRev(last+1))
	put(t, client, "/a", "2", last)
	if answer := next(t, answers); len(answer.Events) != 1 || string(answer.Events[0].PrevKv.Value) != "1" {
		t.Errorf("%+v", answer)
	}
}

func TestAWatchThatIsTooFarBehindEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	slow := &stream{cancel: cancel, ready: make(chan struct{}, 1)}
	for range mostPending {
		slow.push(entry{revision: 1})
	}
	if ctx.Err() != nil {
		t.Fatal("it ended early")
	}
	slow.push(entry{revision: 1})
	if ctx.Err() == nil || len(slow.take()) != mostPending {
		t.Error("it goes on")
	}
}

// kine drops readers that are too slow; what it does with the reader of all changes must lose none.
func TestAReaderThatWasDroppedMissesNothing(t *testing.T) {
	_, client := opened(t, t.TempDir())
	found := client.Watcher.(*watcher).hub
	own := newHub(found.backend, found.log)
	if err := own.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := put(t, client, "/a", "1", 0)
	// As if it had been dropped before it read this.
	dropped := make(chan []*server.Event)
	close(dropped)
	own.events = dropped
	other := newWatcher(own)
	answers := other.Watch(t.Context(), "/", clientv3.WithPrefix())
	for begun := 0; begun == 0; {
		own.lock.Lock()
		begun = len(own.streams)
		own.lock.Unlock()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- own.run(ctx) }()
	after := put(t, client, "/b", "1", 0)
	var revisions []int64
	for len(revisions) < 2 {
		for _, event := range next(t, answers).Events {
			revisions = append(revisions, event.Kv.ModRevision)
		}
	}
	if revisions[0] != before || revisions[1] != after {
		t.Errorf("%d, wanted %d and %d", revisions, before, after)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRequestsThatEtcdRefusesAreRefused(t *testing.T) {
	_, client := opened(t, t.TempDir())
	_, err := client.OptimisticPut(t.Context(), "/a", make([]byte, largestRequest), 0, kubernetes.PutOptions{})
	if err == nil || !strings.Contains(err.Error(), "request is too large") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.KV.Get(ctx, "/a"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWhatWasWrittenIsThereAfterTheEnd(t *testing.T) {
	folder := t.TempDir()
	store, client := opened(t, folder)
	var group sync.WaitGroup
	var lock sync.Mutex
	var written []string
	for number := range 8 {
		group.Go(func() {
			for count := 0; ; count++ {
				key := fmt.Sprintf("/w%d/%d", number, count)
				if _, err := client.OptimisticPut(context.Background(), key, []byte("1"), 0, kubernetes.PutOptions{}); err != nil {
					return
				}
				lock.Lock()
				written = append(written, key)
				lock.Unlock()
			}
		})
	}
	for answers := client.Watch(t.Context(), "/", clientv3.WithPrefix()); len(next(t, answers).Events) == 0; {
	}
	store.Close()
	group.Wait()
	database, err := sql.Open("sqlite", filepath.Join(folder, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	for _, key := range written {
		var found int
		if err := database.QueryRow("SELECT count(*) FROM kine WHERE name = ?", key).Scan(&found); err != nil || found != 1 {
			t.Errorf("%s is lost: %d, %v", key, found, err)
		}
	}
	if len(written) == 0 {
		t.Error("nothing was written")
	}
}
