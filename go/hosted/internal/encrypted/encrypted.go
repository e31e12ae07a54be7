// Package encrypted stores objects again that are stored unencrypted, or under a former key.
package encrypted

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
)

// A value has at most 1.5 MiB, and the process little memory.
const page = 16

// Rewrite stores every object of the resources of an EncryptionConfiguration under its first key, before the API server
// serves. Others may write meanwhile, with the same file: their values are left as they are.
func Rewrite(ctx context.Context, kv clientv3.KV, prefix, file string) error {
	found, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, "")
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for resource, transformer := range found.Transformers {
		if err := rewrite(ctx, kv, strings.TrimSuffix(prefix, "/")+"/"+resource.Resource+"/", transformer); err != nil {
			return err
		}
	}
	return nil
}

func rewrite(ctx context.Context, kv clientv3.KV, prefix string, transformer value.Transformer) error {
	next, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		answer, err := kv.Get(ctx, next, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return err
		}
		for _, each := range answer.Kvs {
			next = string(each.Key) + "\x00"
			if err := again(ctx, kv, string(each.Key), each.Value, each.ModRevision, transformer); err != nil {
				return err
			}
		}
		if !answer.More || len(answer.Kvs) == 0 {
			return nil
		}
	}
}

func again(
	ctx context.Context, kv clientv3.KV, key string, stored []byte, revision int64, transformer value.Transformer,
) error {
	about := value.DefaultContext(key)
	plain, isStale, err := transformer.TransformFromStorage(ctx, stored, about)
	if err != nil {
		return fmt.Errorf("%s cannot be decrypted: %w: its key is missing: a copy of a snapshot needs the file with its keys, FILE.keys", key, err)
	}
	if !isStale {
		return nil
	}
	changed, err := transformer.TransformToStorage(ctx, plain, about)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	// Another process may have written it, under the first key, or deleted it.
	_, err = kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(changed))).Else(clientv3.OpGet(key)).Commit()
	return err
}
