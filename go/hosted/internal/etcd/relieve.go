package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// AllowanceKey is where the control planes of an etcd read what each of them may write; without it, what their own settings
// say. They may not write it.
const AllowanceKey = "/allowance"

// Allowance is what each control plane may hold, and write, while an etcd is nearly full.
type Allowance struct {
	Bytes          int64 `json:"bytes"`
	BytesPerSecond int64 `json:"bytesPerSecond"`
}

// ReadAllowance returns what a value says; one that cannot be read says nothing.
func ReadAllowance(value []byte) Allowance {
	var found Allowance
	if json.Unmarshal(value, &found) != nil || found.Bytes < 0 || found.BytesPerSecond < 0 {
		return Allowance{}
	}
	return found
}

const (
	leastBytes, leastRate = 16 << 20, 64 << 10
	// All control planes together, while the etcd is nearly full.
	sharedRate = 8 << 20
	// The file may have so much room for new values after it was rewritten.
	routineBytes = 64 << 20
	// An etcd makes room, and reports it, with its next commit, which is at most so much later.
	commitInterval = 100 * time.Millisecond
	commits        = 10
)

// Fullness is how an etcd is, in bytes.
type Fullness struct {
	// Quota is how large its file may be: it refuses all writes then, until its alarm is ended.
	Quota int64
	// File has the values, former ones and room; InUse is without the room.
	File, InUse int64
	IsAlarmed   bool
}

// isTight returns whether former values must go now.
func (f Fullness) isTight() bool { return f.IsAlarmed || f.InUse > f.Quota/2 }

// isLoose returns whether the file is to be rewritten, during which the etcd does not answer.
func (f Fullness) isLoose(isRoutine bool) bool {
	room := f.File - f.InUse
	if f.IsAlarmed {
		return true
	}
	if isRoutine && room > routineBytes && room > f.File/2 {
		return true
	}
	return f.File > f.Quota/2 && room > f.Quota/8
}

// allowance returns what each of the control planes may hold and write when no former values are left, and whether that
// is to be changed.
//
// Half of the quota is for what is there when the limit comes, a quarter for what those below it may add, and the last
// quarter for former values. Without the limit again at two fifths, it does not come and go.
func (f Fullness) allowance(planes int64, before Allowance) (Allowance, bool) {
	planes = max(planes, 1)
	limited := Allowance{
		Bytes: max(f.Quota/4/planes, leastBytes), BytesPerSecond: max(sharedRate/planes, leastRate),
	}
	switch {
	case f.InUse > f.Quota/2:
		return limited, limited != before
	case before != Allowance{} && f.InUse < f.Quota/5*2:
		return Allowance{}, true
	}
	return before, false
}

// Relief is what was done.
type Relief struct {
	Compacted    bool `json:"compacted,omitempty"`
	Defragmented bool `json:"defragmented,omitempty"`
	// Disarmed says that the etcd had refused all writes, and does not any more.
	Disarmed bool `json:"disarmed,omitempty"`
	// Full says that it still refuses them: only deletions make room.
	Full bool `json:"full,omitempty"`
	// Limit is what each control plane may hold from now on.
	Limit int64 `json:"limit,omitempty"`
	// Freed says that there is no such limit any more.
	Freed bool `json:"freed,omitempty"`
}

// relieve makes room in an etcd before it is full, and after that.
//
// Args: isRoutine rewrites the file, too, if half of it is room.
func relieve(ctx context.Context, client *clientv3.Client, isRoutine bool) (Relief, error) {
	var done Relief
	now, err := fullness(ctx, client)
	if err != nil {
		return done, err
	}
	if now.isTight() {
		if now, err = compact(ctx, client, now); err != nil {
			return done, fmt.Errorf("compaction: %w", err)
		}
		done.Compacted = true
	}
	if now.isLoose(isRoutine) {
		if _, err := client.Defragment(ctx, client.Endpoints()[0]); err != nil {
			return done, fmt.Errorf("defragmentation: %w", err)
		}
		done.Defragmented = true
		wasAlarmed := now.IsAlarmed
		if now, err = fullness(ctx, client); err != nil {
			return done, err
		}
		now.IsAlarmed = wasAlarmed
	}
	if now.IsAlarmed {
		if now.File > now.Quota/8*7 {
			// The next write would be refused again.
			done.Full = true
			return done, nil
		}
		if err := disarm(ctx, client); err != nil {
			return done, fmt.Errorf("end of the alarm: %w", err)
		}
		done.Disarmed = true
	}
	return done, limit(ctx, client, now, &done)
}

func fullness(ctx context.Context, client *clientv3.Client) (Fullness, error) {
	status, err := client.Status(ctx, client.Endpoints()[0])
	if err != nil {
		return Fullness{}, err
	}
	found := Fullness{Quota: status.DbSizeQuota, File: status.DbSize, InUse: status.DbSizeInUse}
	if found.Quota <= 0 {
		return found, errors.New("the etcd does not report its quota: it is too old")
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return found, err
	}
	for _, each := range alarms.Alarms {
		found.IsAlarmed = found.IsAlarmed || each.Alarm == etcdserverpb.AlarmType_NOSPACE
	}
	return found, nil
}

// disarm ends the alarm of each member; a request without a member ends none.
func disarm(ctx context.Context, client *clientv3.Client) error {
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, each := range alarms.Alarms {
		if each.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: each.MemberID, Alarm: each.Alarm}); err != nil {
			return err
		}
	}
	return nil
}

// compact removes all former values, and waits until the etcd reports the room.
func compact(ctx context.Context, client *clientv3.Client, before Fullness) (Fullness, error) {
	// A key that is not there: the answer has the revision, and the deletion below has the etcd commit.
	last, err := client.Get(ctx, AllowanceKey+"/none", clientv3.WithCountOnly())
	if err != nil {
		return before, err
	}
	_, err = client.Compact(ctx, last.Header.Revision, clientv3.WithCompactPhysical())
	if err := unless(err, rpctypes.ErrCompacted); err != nil {
		return before, err
	}
	tick := time.NewTicker(commitInterval)
	defer tick.Stop()
	now := before
	for range commits {
		if _, err := client.Delete(ctx, AllowanceKey+"/none"); err != nil {
			return now, err
		}
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-tick.C:
		}
		if now, err = fullness(ctx, client); err != nil {
			return now, err
		}
		if !now.isTight() {
			break
		}
	}
	return now, nil
}

// limit writes what each control plane may hold.
func limit(ctx context.Context, client *clientv3.Client, now Fullness, done *Relief) error {
	found, err := client.Get(ctx, AllowanceKey)
	if err != nil {
		return err
	}
	before := Allowance{}
	if len(found.Kvs) > 0 {
		before = ReadAllowance(found.Kvs[0].Value)
	}
	roles, err := client.RoleList(ctx)
	if err != nil {
		return err
	}
	wanted, isNew := now.allowance(int64(len(roles.Roles)-1), before)
	if !isNew {
		return nil
	}
	if wanted == (Allowance{}) {
		done.Freed = true
		_, err = client.Delete(ctx, AllowanceKey)
		return err
	}
	content, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	done.Limit = wanted.Bytes
	_, err = client.Put(ctx, AllowanceKey, string(content))
	return err
}
