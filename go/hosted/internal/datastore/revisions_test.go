package datastore

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// kine answers as an etcd does.
func numberedOn(t *testing.T, offset int64) (*clientv3.Client, clientv3.KV, revisions) {
	t.Helper()
	store, plain := opened(t, t.TempDir())
	last, err := plain.KV.Get(t.Context(), "/p/a")
	if err != nil {
		t.Fatal(err)
	}
	by := revisions{offset: offset, floor: last.Header.Revision + offset}
	client := clientv3.NewCtxClient(t.Context())
	client.KV = clientv3.NewKVFromKVClient(newPaged(renumbered{store.calls, by}), client)
	return client, plain.KV, by
}

func TestRevisionsGoOnAfterTheOffset(t *testing.T) {
	const offset = 1_000_000
	client, plain, by := numberedOn(t, offset)
	if err := create(t, client, "/p/a", 10); err != nil {
		t.Fatal(err)
	}
	found, err := client.Get(t.Context(), "/p/a")
	if err != nil || len(found.Kvs) != 1 {
		t.Fatal(found, err)
	}
	below, err := plain.Get(t.Context(), "/p/a")
	if err != nil {
		t.Fatal(err)
	}
	first := found.Kvs[0].ModRevision
	if first != below.Kvs[0].ModRevision+offset || found.Kvs[0].CreateRevision != below.Kvs[0].CreateRevision+offset ||
		found.Header.Revision != below.Header.Revision+offset {
		t.Errorf("%+v, below %+v", found, below)
	}
	update := func(at int64) bool {
		same := clientv3.Compare(clientv3.ModRevision("/p/a"), "=", at)
		answer, err := client.Txn(t.Context()).If(same).Then(clientv3.OpPut("/p/a", "new")).Else(clientv3.OpGet("/p/a")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		if !answer.Succeeded && answer.Responses[0].GetResponseRange().Kvs[0].ModRevision <= offset {
			t.Errorf("%+v", answer)
		}
		return answer.Succeeded
	}
	// A revision of the etcd itself, and one that would be "there is none" there.
	for _, stale := range []int64{first - offset, offset, 1} {
		if update(stale) {
			t.Errorf("an update at %d succeeds", stale)
		}
	}
	if !update(first) {
		t.Error("an update at the last revision fails")
	}
	old, err := client.Get(t.Context(), "/p/a", clientv3.WithRev(first))
	if err != nil || len(old.Kvs) != 1 || len(old.Kvs[0].Value) != 10 {
		t.Errorf("%+v, %v", old, err)
	}
	for _, before := range []int64{1, offset, by.floor - 1} {
		if _, err := client.Get(t.Context(), "/p/a", clientv3.WithRev(before)); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("a read at %d: %v", before, err)
		}
		ended := <-renumberedWatcher{nil, by}.Watch(t.Context(), "/p/", clientv3.WithPrefix(), clientv3.WithRev(before))
		if !errors.Is(ended.Err(), rpctypes.ErrCompacted) {
			t.Errorf("a watch from %d: %v", before, ended.Err())
		}
	}
}

// script is a stream of an etcd.
type script struct {
	etcdserverpb.Watch_WatchClient
	sent   []*etcdserverpb.WatchRequest
	answer etcdserverpb.WatchResponse
}

func (s *script) Send(asked *etcdserverpb.WatchRequest) error {
	s.sent = append(s.sent, asked)
	return nil
}

func (s *script) Recv() (*etcdserverpb.WatchResponse, error) { return &s.answer, nil }

func TestWatchesAreNumberedOn(t *testing.T) {
	below := &script{answer: etcdserverpb.WatchResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: 9}, CompactRevision: 0,
		Events: []*mvccpb.Event{
			{Kv: &mvccpb.KeyValue{CreateRevision: 5, ModRevision: 8}, PrevKv: &mvccpb.KeyValue{CreateRevision: 5, ModRevision: 7}},
			// Of a deletion.
			{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{ModRevision: 9}},
		},
	}}
	stream := renumberedStream{below, revisions{offset: 100}}
	if err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("/p/"), StartRevision: 106},
	}}); err != nil {
		t.Fatal(err)
	}
	if sent := below.sent[0].GetCreateRequest(); sent.StartRevision != 6 || string(sent.Key) != "/p/" {
		t.Errorf("%+v", sent)
	}
	found, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	numbers := []int64{
		found.Header.Revision, found.CompactRevision, found.Events[0].Kv.CreateRevision, found.Events[0].Kv.ModRevision,
		found.Events[0].PrevKv.ModRevision, found.Events[1].Kv.CreateRevision, found.Events[1].Kv.ModRevision,
	}
	if got := fmt.Sprint(numbers); got != "[109 0 105 108 107 0 109]" {
		t.Error(got)
	}
}

func TestAListIsReadInPagesOfOneRevision(t *testing.T) {
	client, _, _ := numberedOn(t, 1000)
	const many = 2*mostKeys + firstKeys + 5
	for number := range many {
		if err := create(t, client, fmt.Sprintf("/p/%06d", number), 10); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int64{0, 1, firstKeys, firstKeys + 1, many - 1, many, many + 1} {
		found, err := client.Get(t.Context(), "/p/", clientv3.WithPrefix(), clientv3.WithLimit(limit))
		if err != nil {
			t.Fatal(err)
		}
		wanted := int64(many)
		if limit > 0 {
			wanted = min(limit, wanted)
		}
		if int64(len(found.Kvs)) != wanted || found.More != (wanted < many) {
			t.Errorf("limit %d: %d keys, more: %t", limit, len(found.Kvs), found.More)
		}
		for number, each := range found.Kvs {
			if string(each.Key) != fmt.Sprintf("/p/%06d", number) {
				t.Fatalf("limit %d: %q at %d", limit, each.Key, number)
			}
		}
	}
}
