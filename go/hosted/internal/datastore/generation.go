package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tenantry.dev/hosted/internal/etcd"
	"tenantry.dev/hosted/internal/settings"
)

// In an etcd, the keys of a restored control plane are below another prefix than before:
//
//	/planes/UID/pods/…       until the first restore
//	/planes/UID/@restored    {"number": 2, "offset": 960}   says which ones count
//	/planes/UID/@2/pods/…    since the second restore
//
// The one write of @restored replaces all keys. No resource has a name with "@".
const (
	current = "/@restored"
	// What follows "@" and "/" in the order of keys.
	afterMark, afterSlash = "A", "0"
)

// generation is which keys of a control plane count, and how their revisions are numbered.
type generation struct {
	Number int64 `json:"number"`
	Offset int64 `json:"offset"`
	// floor is the revision at which they began to count, as clients know it; 0 before any restore.
	floor int64
	// written is the revision of the etcd at which this was written, 0 for never.
	written int64
}

func (g generation) prefix(of string) string {
	if g.Number == 0 {
		return of
	}
	return fmt.Sprintf("%s/@%d", of, g.Number)
}

func (g generation) revisions() revisions { return revisions{offset: g.Offset, floor: g.floor} }

// generationOf returns the generation of a control plane, and the last revision of the etcd.
func generationOf(ctx context.Context, client clientv3.KV, prefix string) (generation, int64, error) {
	var found generation
	answer, err := client.Get(ctx, prefix+current)
	if err != nil {
		return found, 0, err
	}
	if len(answer.Kvs) == 0 {
		return found, answer.Header.Revision, nil
	}
	if err := json.Unmarshal(answer.Kvs[0].Value, &found); err != nil || found.Number < 1 || found.Offset < 0 {
		return found, 0, fmt.Errorf("%s is damaged: %q", prefix+current, answer.Kvs[0].Value)
	}
	found.written = answer.Kvs[0].ModRevision
	found.floor = found.written + found.Offset
	return found, answer.Header.Revision, nil
}

// tidy deletes the keys of a control plane that do not count: those before a restore, and those of one that was cut short.
func tidy(ctx context.Context, client clientv3.KV, prefix string, keep generation) error {
	mark := prefix + current
	others := [][2]string{{prefix + "/@", mark}, {mark + "\x00", prefix + "/" + afterMark}}
	if keep.Number > 0 {
		own := keep.prefix(prefix)
		others = [][2]string{
			{prefix + "/", own + "/"}, {own + afterSlash, mark}, {mark + "\x00", prefix + afterSlash},
		}
	}
	for _, each := range others {
		if err := etcd.DeleteRange(ctx, client, each[0], each[1]); err != nil {
			return fmt.Errorf("old keys: %w", err)
		}
	}
	return nil
}

// replaceETCD writes a snapshot below a new prefix, and makes this one the one that counts.
//
// Revisions of the etcd cannot be raised while it runs, and are those of all control planes in it. So this one numbers its
// own: after all that clients have seen, here or where the snapshot is from.
func replaceETCD(
	ctx context.Context, given settings.Datastore, revision int64, fill func(*clientv3.Client, string) error,
) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	store, err := Open(ctx, given, fail)
	if err != nil {
		return err
	}
	defer store.Close()
	prefix, plain := given.ETCD.Prefix, store.connection.KV
	before, last, err := generationOf(ctx, plain, prefix)
	if err != nil {
		return err
	}
	next := generation{Number: before.Number + 1, Offset: max(before.Offset, revision-last)}
	// What there is, is deleted afterwards.
	store.writes.only(next.prefix(prefix))
	if err := fill(store.Client(), next.prefix(prefix)); err != nil {
		// What is left is deleted now, or when the control plane starts.
		return errors.Join(err, tidy(ctx, plain, prefix, before))
	}
	content, err := json.Marshal(next)
	if err != nil {
		return err
	}
	answer, err := plain.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(prefix+current), "=", before.written)).
		Then(clientv3.OpPut(prefix+current, string(content))).Commit()
	if err != nil {
		return err
	}
	if !answer.Succeeded {
		return errors.New("another restore was faster: try again")
	}
	return tidy(ctx, plain, prefix, next)
}
