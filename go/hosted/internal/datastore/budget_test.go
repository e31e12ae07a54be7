package datastore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"

	"tenantry.dev/hosted/internal/etcd"
)

// kine answers as an etcd does, without a connection.
func bounded(t *testing.T, most int64) (*budget, *clientv3.Client) {
	t.Helper()
	store, _ := opened(t, t.TempDir())
	found := newBudget(store.calls, "/p", most, 1)
	client := clientv3.NewCtxClient(t.Context())
	client.KV = clientv3.NewKVFromKVClient(found, client)
	return found, client
}

func create(t *testing.T, client *clientv3.Client, key string, bytes int) error {
	t.Helper()
	absent := clientv3.Compare(clientv3.ModRevision(key), "=", 0)
	_, err := client.Txn(t.Context()).If(absent).Then(clientv3.OpPut(key, strings.Repeat("x", bytes))).Commit()
	return err
}

func TestWritesBeyondTheBudgetAreRefused(t *testing.T) {
	found, client := bounded(t, 10_000)
	for number := range 3 {
		if err := create(t, client, fmt.Sprintf("/p/%d", number), 3000); err != nil {
			t.Fatal(err)
		}
	}
	if err := found.count(t.Context()); err != nil || found.held() != 3*3004 {
		t.Fatalf("%d bytes, %v", found.held(), err)
	}
	if err := create(t, client, "/p/3", 3000); err == nil || !strings.Contains(err.Error(), "delete objects") {
		t.Errorf("a write beyond the budget: %v", err)
	}
	// Deletions need no room, and make it. A test does not wait until they are counted.
	first, err := client.Get(t.Context(), "/p/0")
	if err != nil {
		t.Fatal(err)
	}
	same := clientv3.Compare(clientv3.ModRevision("/p/0"), "=", first.Kvs[0].ModRevision)
	if _, err := client.Txn(t.Context()).If(same).Then(clientv3.OpDelete("/p/0")).Else(clientv3.OpGet("/p/0")).Commit(); err != nil {
		t.Fatal(err)
	}
	if err := create(t, client, "/p/3", 3000); err == nil {
		t.Error("it is counted at every write")
	}
	found.counted = time.Now().Add(-2 * countInterval)
	if err := create(t, client, "/p/3", 3000); err != nil {
		t.Errorf("a write after a deletion: %v", err)
	}
}

func TestAllPagesAreCounted(t *testing.T) {
	found, client := bounded(t, 1<<20)
	const many = 2*countPage + 1
	for number := range many {
		if err := create(t, client, fmt.Sprintf("/p/%06d", number), 10); err != nil {
			t.Fatal(err)
		}
	}
	// Another control plane's.
	if err := create(t, client, "/p2/0", 10); err != nil {
		t.Fatal(err)
	}
	if err := found.count(t.Context()); err != nil || found.held() != many*19 {
		t.Errorf("%d bytes, %v", found.held(), err)
	}
}

func TestWritesAreBoundedInTime(t *testing.T) {
	found, _ := bounded(t, 1<<20)
	found.rate = rate.NewLimiter(1, 1000)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	put := func(bytes int) error {
		value := &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
			RequestPut: &etcdserverpb.PutRequest{Key: []byte("/p/a"), Value: make([]byte, bytes)}}}
		// kine knows no such transaction; the budget comes before it.
		_, err := found.Txn(ctx, &etcdserverpb.TxnRequest{Failure: []*etcdserverpb.RequestOp{value}})
		return err
	}
	if err := put(900); err == nil || strings.Contains(err.Error(), "too much at once") {
		t.Errorf("the first write: %v", err)
	}
	if err := put(900); err == nil || !strings.Contains(err.Error(), "too much at once") {
		t.Errorf("the second write: %v", err)
	}
}

func TestAnEtcdThatIsNearlyFullRefusesWhatIsBeyondItsAllowance(t *testing.T) {
	found, client := bounded(t, 1<<20)
	if err := create(t, client, "/p/0", 3000); err != nil {
		t.Fatal(err)
	}
	allow := func(bytes, rate int64) {
		found.allowed, found.asked = etcd.Allowance{Bytes: bytes, BytesPerSecond: rate}, time.Now()
	}
	allow(4000, leastForTest)
	if err := create(t, client, "/p/1", 3000); err == nil || !strings.Contains(err.Error(), "nearly full") {
		t.Errorf("a write beyond the allowance: %v", err)
	}
	if err := create(t, client, "/p/2", 100); err != nil {
		t.Errorf("a write below the allowance: %v", err)
	}
	// Without the key, the limit ends with the next question.
	found.asked = time.Time{}
	if err := create(t, client, "/p/1", 3000); err != nil || found.allowed != (etcd.Allowance{}) {
		t.Errorf("after the end of the allowance: %v", err)
	}
}

func TestTheAllowanceIsReadFromTheEtcd(t *testing.T) {
	found, client := bounded(t, 1<<20)
	absent := clientv3.Compare(clientv3.ModRevision(etcd.AllowanceKey), "=", 0)
	value := clientv3.OpPut(etcd.AllowanceKey, `{"bytes": 4000, "bytesPerSecond": 70000}`)
	if _, err := client.Txn(t.Context()).If(absent).Then(value).Commit(); err != nil {
		t.Fatal(err)
	}
	found.asked = time.Time{}
	if err := create(t, client, "/p/1", 5000); err == nil || !strings.Contains(err.Error(), "nearly full") {
		t.Errorf("a write beyond the allowance: %v", err)
	}
	if found.rate.Limit() != 70000 || found.rate.Burst() < largestRequest {
		t.Errorf("%v, %d", found.rate.Limit(), found.rate.Burst())
	}
}

const leastForTest = 1 << 20

func TestSeveralProcessesTogetherStayBelowTwiceTheBudget(t *testing.T) {
	const most = 60_000
	first, client := bounded(t, most)
	first.processes = 2
	second := newBudget(first.KVClient, "/p", most, 2)
	other := clientv3.NewCtxClient(t.Context())
	other.KV = clientv3.NewKVFromKVClient(second, other)
	// One alone, then the other one, whose count is of the beginning.
	for number := range 2 * most / 3000 {
		_ = create(t, client, fmt.Sprintf("/p/a%d", number), 3000)
		first.counted = time.Time{}
	}
	for number := range 2 * most / 3000 {
		_ = create(t, other, fmt.Sprintf("/p/b%d", number), 3000)
	}
	if err := first.count(t.Context()); err != nil || first.held() >= 2*most || first.held() < most-2*3004 {
		t.Fatalf("%d bytes of %d, %v", first.held(), most, err)
	}
}
