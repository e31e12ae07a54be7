package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// root is the user that etcd itself gives all rights.
	root = "root"
	// How long an etcd may take to answer, while it starts too.
	patience = 30 * time.Second
	// Removing and saving move up to all data.
	longPatience = 10 * time.Minute
	removeBatch  = 1000
)

const Usage = `hosted etcd ACCESS admit USER PREFIX | remove USER PREFIX | count PREFIX... | defragment | save FILE | relieve [routine] | keep ADDRESS PROBES KEYS BACKUP`

// Run does one act of administration. ACCESS is a JSON file, relative to whose folder the names in it are; the caller has
// changed to it. Each act may be repeated.
func Run(ctx context.Context, file string, arguments []string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var access Access
	if err := json.Unmarshal(content, &access); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	client, err := Connect(ctx, access)
	if err != nil {
		return err
	}
	defer client.Close()
	switch {
	case len(arguments) == 3 && arguments[0] == "admit":
		return within(ctx, patience, func(ctx context.Context) error { return admit(ctx, client, arguments[1], arguments[2]) })
	case len(arguments) == 3 && arguments[0] == "remove":
		return within(ctx, longPatience, func(ctx context.Context) error { return remove(ctx, client, arguments[1], arguments[2]) })
	case len(arguments) >= 2 && arguments[0] == "count":
		return within(ctx, patience, func(ctx context.Context) error { return count(ctx, client, arguments[1:]) })
	case len(arguments) == 1 && arguments[0] == "defragment":
		return within(ctx, longPatience, func(ctx context.Context) error {
			_, err := client.Defragment(ctx, client.Endpoints()[0])
			return err
		})
	case len(arguments) == 2 && arguments[0] == "save":
		return within(ctx, longPatience, func(ctx context.Context) error { return save(ctx, client, arguments[1]) })
	case len(arguments) == 5 && arguments[0] == "keep":
		return keep(ctx, client, arguments[1], arguments[2], arguments[3], arguments[4])
	case arguments[0] == "relieve" && (len(arguments) == 1 || len(arguments) == 2 && arguments[1] == "routine"):
		return within(ctx, longPatience, func(ctx context.Context) error {
			done, err := relieve(ctx, client, len(arguments) == 2)
			if err == nil && done != (Relief{}) {
				err = json.NewEncoder(os.Stdout).Encode(done)
			}
			return err
		})
	}
	return errors.New("usage: " + Usage)
}

func within(ctx context.Context, limit time.Duration, act func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return act(ctx)
}

// admit gives a user all keys below a prefix, and no others. The first one closes the etcd to users without rights.
func admit(ctx context.Context, client *clientv3.Client, user, prefix string) error {
	if err := closeToOthers(ctx, client); err != nil {
		return fmt.Errorf("authentication: %w", err)
	}
	start := prefix + "/"
	_, err := client.RoleAdd(ctx, user)
	if err := unless(err, rpctypes.ErrRoleAlreadyExist); err != nil {
		return fmt.Errorf("role %s: %w", user, err)
	}
	rights := clientv3.PermissionType(clientv3.PermReadWrite)
	if _, err := client.RoleGrantPermission(ctx, user, start, clientv3.GetPrefixRangeEnd(start), rights); err != nil {
		return fmt.Errorf("rights of role %s: %w", user, err)
	}
	if _, err := client.RoleGrantPermission(
		ctx, user, AllowanceKey, "", clientv3.PermissionType(clientv3.PermRead)); err != nil {
		return fmt.Errorf("rights of role %s: %w", user, err)
	}
	_, err = client.UserAddWithOptions(ctx, user, "", &clientv3.UserAddOptions{NoPassword: true})
	if err := unless(err, rpctypes.ErrUserAlreadyExist); err != nil {
		return fmt.Errorf("user %s: %w", user, err)
	}
	if _, err := client.UserGrantRole(ctx, user, user); err != nil {
		return fmt.Errorf("role of user %s: %w", user, err)
	}
	return nil
}

func closeToOthers(ctx context.Context, client *clientv3.Client) error {
	now, err := client.AuthStatus(ctx)
	if err == nil && now.Enabled {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = client.RoleAdd(ctx, root)
	if err := unless(err, rpctypes.ErrRoleAlreadyExist); err != nil {
		return err
	}
	_, err = client.UserAddWithOptions(ctx, root, "", &clientv3.UserAddOptions{NoPassword: true})
	if err := unless(err, rpctypes.ErrUserAlreadyExist); err != nil {
		return err
	}
	if _, err := client.UserGrantRole(ctx, root, root); err != nil {
		return err
	}
	_, err = client.AuthEnable(ctx)
	return err
}

// remove takes the rights first: a process that still runs must not write keys that are never deleted.
func remove(ctx context.Context, client *clientv3.Client, user, prefix string) error {
	if _, err := client.UserDelete(ctx, user); unless(err, rpctypes.ErrUserNotFound) != nil {
		return fmt.Errorf("user %s: %w", user, err)
	}
	if _, err := client.RoleDelete(ctx, user); unless(err, rpctypes.ErrRoleNotFound) != nil {
		return fmt.Errorf("role %s: %w", user, err)
	}
	start := prefix + "/"
	return DeleteRange(ctx, client, start, clientv3.GetPrefixRangeEnd(start))
}

// DeleteRange deletes the keys from start to before end, in parts: etcd does nothing else during a deletion.
func DeleteRange(ctx context.Context, client clientv3.KV, start, end string) error {
	for {
		page, err := client.Get(ctx, start, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(removeBatch))
		if err != nil {
			return err
		}
		if len(page.Kvs) == 0 {
			return nil
		}
		last := string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		if _, err := client.Delete(ctx, start, clientv3.WithRange(last)); err != nil {
			return err
		}
	}
}

// count prints how many keys are below each prefix, one a line, all of one revision.
func count(ctx context.Context, client *clientv3.Client, prefixes []string) error {
	var counts []clientv3.Op
	for _, prefix := range prefixes {
		counts = append(counts, clientv3.OpGet(prefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly()))
	}
	found, err := client.Txn(ctx).Then(counts...).Commit()
	if err != nil {
		return err
	}
	for _, each := range found.Responses {
		fmt.Println(each.GetResponseRange().Count)
	}
	return nil
}

// save writes a copy of the whole etcd; a file of this name has a whole one or does not change.
func save(ctx context.Context, client *clientv3.Client, file string) error {
	content, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer content.Close()
	part := file + ".part"
	out, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, content); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	return os.Rename(part, file)
}

func unless(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
