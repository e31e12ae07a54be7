package datastore

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// revisions translates between the revisions that clients of this control plane know and those of its etcd.
//
//	etcd:    1 … 40        41 (restored)  42 …
//	clients: 1 … 40 ─ 1000 1001           1002 …   offset 960, floor 1001
//
// An etcd has one revision for all of its keys, and cannot skip any while it runs. The objects of a snapshot may have
// later ones.
type revisions struct {
	// offset is added to each revision of the etcd.
	offset int64
	// floor is the first revision that clients may read. Those before are of other keys, or of no keys at all.
	floor int64
}

// up returns a revision as clients know it; 0 stays what it is: none.
func (r revisions) up(revision *int64) {
	if *revision > 0 {
		*revision += r.offset
	}
}

// down returns a revision of the etcd. One from before the offset is no revision there, and equals none.
func (r revisions) down(revision int64) int64 {
	if revision <= 0 {
		return revision
	}
	if revision <= r.offset {
		return -1
	}
	return revision - r.offset
}

func (r revisions) isCompacted(revision int64) bool { return revision > 0 && revision < r.floor }

func (r revisions) header(found *etcdserverpb.ResponseHeader) {
	if found != nil {
		r.up(&found.Revision)
	}
}

func (r revisions) value(found *mvccpb.KeyValue) {
	if found != nil {
		r.up(&found.CreateRevision)
		r.up(&found.ModRevision)
	}
}

func (r revisions) page(found *etcdserverpb.RangeResponse) {
	if found == nil {
		return
	}
	r.header(found.Header)
	for _, each := range found.Kvs {
		r.value(each)
	}
}

// renumbered is the client of an etcd with other revisions.
type renumbered struct {
	etcdserverpb.KVClient
	by revisions
}

func (n renumbered) Range(
	ctx context.Context, asked *etcdserverpb.RangeRequest, options ...grpc.CallOption,
) (*etcdserverpb.RangeResponse, error) {
	if n.by.isCompacted(asked.Revision) {
		return nil, rpctypes.ErrGRPCCompacted
	}
	sent := *asked
	sent.Revision = n.by.down(asked.Revision)
	answer, err := n.KVClient.Range(ctx, &sent, options...)
	n.by.page(answer)
	return answer, err
}

func (n renumbered) Put(
	ctx context.Context, asked *etcdserverpb.PutRequest, options ...grpc.CallOption,
) (*etcdserverpb.PutResponse, error) {
	answer, err := n.KVClient.Put(ctx, asked, options...)
	n.by.put(answer)
	return answer, err
}

func (r revisions) put(found *etcdserverpb.PutResponse) {
	if found != nil {
		r.header(found.Header)
		r.value(found.PrevKv)
	}
}

func (n renumbered) DeleteRange(
	ctx context.Context, asked *etcdserverpb.DeleteRangeRequest, options ...grpc.CallOption,
) (*etcdserverpb.DeleteRangeResponse, error) {
	answer, err := n.KVClient.DeleteRange(ctx, asked, options...)
	n.by.deleted(answer)
	return answer, err
}

func (r revisions) deleted(found *etcdserverpb.DeleteRangeResponse) {
	if found == nil {
		return
	}
	r.header(found.Header)
	for _, each := range found.PrevKvs {
		r.value(each)
	}
}

func (n renumbered) Txn(
	ctx context.Context, asked *etcdserverpb.TxnRequest, options ...grpc.CallOption,
) (*etcdserverpb.TxnResponse, error) {
	sent := *asked
	sent.Compare = make([]*etcdserverpb.Compare, len(asked.Compare))
	for number, each := range asked.Compare {
		compared := *each
		switch target := each.TargetUnion.(type) {
		case *etcdserverpb.Compare_ModRevision:
			compared.TargetUnion = &etcdserverpb.Compare_ModRevision{ModRevision: n.by.down(target.ModRevision)}
		case *etcdserverpb.Compare_CreateRevision:
			compared.TargetUnion = &etcdserverpb.Compare_CreateRevision{CreateRevision: n.by.down(target.CreateRevision)}
		}
		sent.Compare[number] = &compared
	}
	answer, err := n.KVClient.Txn(ctx, &sent, options...)
	if answer == nil {
		return answer, err
	}
	n.by.header(answer.Header)
	// API servers read in transactions only the last value.
	for _, each := range answer.Responses {
		n.by.page(each.GetResponseRange())
		n.by.put(each.GetResponsePut())
		n.by.deleted(each.GetResponseDeleteRange())
	}
	return answer, err
}

func (n renumbered) Compact(
	context.Context, *etcdserverpb.CompactionRequest, ...grpc.CallOption,
) (*etcdserverpb.CompactionResponse, error) {
	// It would be for all control planes.
	return nil, rpctypes.ErrGRPCPermissionDenied
}

// renumberedWatches makes streams with other revisions.
type renumberedWatches struct {
	etcdserverpb.WatchClient
	by revisions
}

func (n renumberedWatches) Watch(ctx context.Context, options ...grpc.CallOption) (etcdserverpb.Watch_WatchClient, error) {
	stream, err := n.WatchClient.Watch(ctx, options...)
	if err != nil {
		return nil, err
	}
	return renumberedStream{stream, n.by}, nil
}

type renumberedStream struct {
	etcdserverpb.Watch_WatchClient
	by revisions
}

func (n renumberedStream) Send(asked *etcdserverpb.WatchRequest) error {
	created := asked.GetCreateRequest()
	if created == nil {
		return n.Watch_WatchClient.Send(asked)
	}
	sent := *created
	sent.StartRevision = n.by.down(created.StartRevision)
	return n.Watch_WatchClient.Send(&etcdserverpb.WatchRequest{
		RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &sent},
	})
}

func (n renumberedStream) Recv() (*etcdserverpb.WatchResponse, error) {
	answer, err := n.Watch_WatchClient.Recv()
	if err != nil {
		return answer, err
	}
	n.by.header(answer.Header)
	n.by.up(&answer.CompactRevision)
	for _, each := range answer.Events {
		n.by.value(each.Kv)
		n.by.value(each.PrevKv)
	}
	return answer, nil
}

// renumberedWatcher ends watches from before the floor, as an etcd ends those from before its last compaction.
type renumberedWatcher struct {
	clientv3.Watcher
	by revisions
}

func (n renumberedWatcher) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	if !n.by.isCompacted(clientv3.OpGet(key, options...).Rev()) {
		return n.Watcher.Watch(ctx, key, options...)
	}
	ended := make(chan clientv3.WatchResponse, 1)
	ended <- clientv3.WatchResponse{
		Header: etcdserverpb.ResponseHeader{Revision: n.by.floor}, CompactRevision: n.by.floor, Canceled: true,
	}
	close(ended)
	return ended
}
