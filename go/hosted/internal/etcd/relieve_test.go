package etcd

import "testing"

const gib = 1 << 30

func TestAnEtcdIsRelievedBeforeItIsFull(t *testing.T) {
	for name, each := range map[string]struct {
		found                      Fullness
		tight, loose, looseRoutine bool
	}{
		"new":                        {Fullness{Quota: 8 * gib, File: 1 << 20, InUse: 1 << 20}, false, false, false},
		"small, and mostly room":     {Fullness{Quota: 8 * gib, File: 60 << 20, InUse: 1 << 20}, false, false, false},
		"some room":                  {Fullness{Quota: 8 * gib, File: gib, InUse: gib / 4}, false, false, true},
		"former values":              {Fullness{Quota: 8 * gib, File: 5 * gib, InUse: 5 * gib}, true, false, false},
		"former values are gone":     {Fullness{Quota: 8 * gib, File: 5 * gib, InUse: gib}, false, true, true},
		"full of what is there":      {Fullness{Quota: 8 * gib, File: 7 * gib, InUse: 7 * gib}, true, false, false},
		"it refuses writes":          {Fullness{Quota: 8 * gib, File: 8 * gib, InUse: 8 * gib, IsAlarmed: true}, true, true, true},
		"its alarm is all that left": {Fullness{Quota: 8 * gib, File: 1 << 20, InUse: 1 << 20, IsAlarmed: true}, true, true, true},
	} {
		if each.found.isTight() != each.tight || each.found.isLoose(false) != each.loose ||
			each.found.isLoose(true) != each.looseRoutine {
			t.Errorf("%s: %t %t %t", name, each.found.isTight(), each.found.isLoose(false), each.found.isLoose(true))
		}
	}
}

func TestControlPlanesThatAddNothingStayBelowTheQuota(t *testing.T) {
	for planes := int64(1); planes <= 128; planes++ {
		at := Fullness{Quota: 8 * gib, InUse: 4*gib + 1}
		found, isNew := at.allowance(planes, Allowance{})
		if !isNew || found.Bytes*planes > at.Quota/4 || found.BytesPerSecond < leastRate {
			t.Errorf("%d: %+v", planes, found)
		}
		if _, isNew := at.allowance(planes, found); isNew {
			t.Errorf("%d: it is written again", planes)
		}
	}
}

func TestALimitEndsOnlyWithRoomToSpare(t *testing.T) {
	limited := Allowance{Bytes: 1, BytesPerSecond: 1}
	for used, isEnd := range map[int64]bool{39: true, 41: false, 50: false} {
		found, isNew := Fullness{Quota: 100, InUse: used}.allowance(1, limited)
		if isNew != isEnd || (found == Allowance{}) != isEnd {
			t.Errorf("%d: %+v", used, found)
		}
	}
	if _, isNew := (Fullness{Quota: 100, InUse: 1}).allowance(1, Allowance{}); isNew {
		t.Error("a limit that is not there ends")
	}
}

func TestWhatIsNoAllowanceLimitsNothing(t *testing.T) {
	for _, each := range []string{"", "{", `{"bytes": -1}`, `[]`} {
		if found := ReadAllowance([]byte(each)); found != (Allowance{}) {
			t.Errorf("%q: %+v", each, found)
		}
	}
}
