package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	pageKeys = 1000
	// Datastores keep a revision for at least five minutes.
	longest = 4 * time.Minute
	// What API servers give to events.
	leaseSeconds = 3600
	// An API server writes these itself, every few seconds.
	addresses = "masterleases/"
	// kine writes this one itself.
	health = "health"
	// The datastore writes these itself. No resource has a name that begins so.
	internal = "@"
)

// Keys are the keys of one control plane in its datastore.
type Keys struct {
	KV    clientv3.KV
	Lease clientv3.Lease
	// Prefix is what all of them begin with; it ends in "/".
	Prefix string
}

// Take writes all keys at the present revision. Writes may go on meanwhile.
//
// Values are read one at a time: a page of the largest ones would take as much memory as the whole process.
func (k Keys) Take(ctx context.Context, about Header, to io.Writer) (Header, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	end := clientv3.GetPrefixRangeEnd(k.Prefix)
	all, err := k.KV.Get(ctx, k.Prefix, clientv3.WithRange(end), clientv3.WithCountOnly())
	if err != nil {
		return about, err
	}
	revision := all.Header.Revision
	about.Format, about.Revision, about.Time = Format, revision, time.Now().UTC().Truncate(time.Second)
	about.Count = all.Count
	for _, name := range []string{addresses, health, internal} {
		key, options := k.Prefix+name, []clientv3.OpOption{clientv3.WithRev(revision)}
		if name != health {
			options = append(options, clientv3.WithPrefix(), clientv3.WithCountOnly())
		}
		left, err := k.KV.Get(ctx, key, options...)
		if err != nil {
			return about, err
		}
		about.Count -= left.Count
	}
	written, err := newWriter(to, about)
	if err != nil {
		return about, err
	}
	for from := k.Prefix; ; {
		page, err := k.KV.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(revision),
			clientv3.WithLimit(pageKeys), clientv3.WithKeysOnly())
		if err != nil {
			return about, err
		}
		for _, listed := range page.Kvs {
			if err := k.copy(ctx, string(listed.Key), revision, written); err != nil {
				return about, err
			}
			from = string(listed.Key) + "\x00"
		}
		if !page.More || len(page.Kvs) == 0 {
			return about, written.end()
		}
	}
}

func (k Keys) copy(ctx context.Context, key string, revision int64, to *writer) error {
	name := strings.TrimPrefix(key, k.Prefix)
	if name == health || strings.HasPrefix(name, addresses) || strings.HasPrefix(name, internal) {
		return nil
	}
	found, err := k.KV.Get(ctx, key, clientv3.WithRev(revision))
	if err != nil {
		return err
	}
	if len(found.Kvs) != 1 {
		return fmt.Errorf("%q is missing at revision %d", key, revision)
	}
	return to.add(Entry{Key: name, Value: found.Kvs[0].Value, Leased: found.Kvs[0].Lease != 0})
}

// Restore writes all keys of a snapshot, where there are none. On an error, some of them may have been written.
func (k Keys) Restore(ctx context.Context, from *Reader) error {
	lease := clientv3.NoLease
	for {
		entry, err := from.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var options []clientv3.OpOption
		if entry.Leased {
			if lease == clientv3.NoLease {
				granted, err := k.Lease.Grant(ctx, leaseSeconds)
				if err != nil {
					return err
				}
				lease = granted.ID
			}
			options = append(options, clientv3.WithLease(lease))
		}
		key := k.Prefix + entry.Key
		answer, err := k.KV.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, string(entry.Value), options...)).Commit()
		if err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
		if !answer.Succeeded {
			return fmt.Errorf("the datastore has %q already: it must be empty", key)
		}
	}
}

// Verify reads a file to its end, and returns its header if it is a whole snapshot that a version of Kubernetes can use.
func Verify(file, kubernetes string) (Header, error) {
	from, err := os.Open(file)
	if err != nil {
		return Header{}, err
	}
	defer from.Close()
	found, err := NewReader(from)
	if err != nil {
		return Header{}, err
	}
	defer found.Close()
	// First: the rest of a later format may look damaged.
	if err := found.Header.Check(kubernetes); err != nil {
		return found.Header, err
	}
	for {
		switch _, err := found.Next(); {
		case errors.Is(err, io.EOF):
			return found.Header, nil
		case err != nil:
			return found.Header, err
		}
	}
}
