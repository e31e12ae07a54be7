package etcd

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAKeeperAdmitsOnlyUsersAndPrefixesOfControlPlanes(t *testing.T) {
	for name, each := range map[string]struct {
		asked grant
		isOK  bool
	}{
		"a control plane":         {grant{User: "plane-1", Prefix: "/planes/1"}, true},
		"the administrator":       {grant{User: root, Prefix: "/planes/1"}, false},
		"no user":                 {grant{Prefix: "/planes/1"}, false},
		"all keys":                {grant{User: "plane-1", Prefix: "/"}, false},
		"no prefix":               {grant{User: "plane-1"}, false},
		"all control planes":      {grant{User: "plane-1", Prefix: "/planes"}, false},
		"above its prefix":        {grant{User: "plane-1", Prefix: "/planes/1/.."}, false},
		"a relative prefix":       {grant{User: "plane-1", Prefix: "planes/1"}, false},
		"a prefix with its slash": {grant{User: "plane-1", Prefix: "/planes/1/"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := each.asked.check(); (err == nil) != each.isOK {
				t.Errorf("%+v: %v", each.asked, err)
			}
		})
	}
}

func TestACopyIsDueWhenThereIsNoneOrItIsOld(t *testing.T) {
	file, now := filepath.Join(t.TempDir(), "backup.db"), time.Now()
	if !isDue(file, now, saveEvery) {
		t.Error("there is none")
	}
	if err := touch(file); err != nil {
		t.Fatal(err)
	}
	if isDue(file, now, saveEvery) {
		t.Error("it has just been made")
	}
	if err := os.Chtimes(file, now, now.Add(-saveEvery-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if !isDue(file, now, saveEvery) {
		t.Error("it is old")
	}
}

func TestACopyLeavesRoomForTheEtcd(t *testing.T) {
	folder := t.TempDir()
	if err := enough(folder, 1); err != nil {
		t.Error(err)
	}
	if err := enough(folder, 1<<60); err == nil {
		t.Error("no volume has so much room")
	}
}
