package reclaim

import (
	"slices"
	"testing"
)

func TestMemoryIsReturnedAfterWork(t *testing.T) {
	const work, rest = least, 1 << 10
	for name, test := range map[string]struct {
		allocations []uint64
		returned    []int
	}{
		"at rest":                 {[]uint64{rest, rest, rest, rest}, nil},
		"after work":              {[]uint64{work, rest, rest, rest}, []int{1}},
		"little work adds up":     {[]uint64{least / 2, least / 2, rest}, []int{1}},
		"work that does not end":  {[]uint64{work, work, work, work, work, work}, []int{2, 5}},
		"work again after a rest": {[]uint64{work, rest, rest, work, rest}, []int{1, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			var found gauge
			var returned []int
			total := uint64(0)
			for interval, each := range test.allocations {
				total += each
				if found.isDue(total) {
					returned = append(returned, interval)
				}
			}
			if !slices.Equal(returned, test.returned) {
				t.Errorf("memory returned after the intervals %v, not %v", returned, test.returned)
			}
		})
	}
}

// The name of a metric of the runtime that an upgrade renames would read as 0, or panic.
func TestAllocationsAreCounted(t *testing.T) {
	before := read()
	sink = make([]byte, least)
	if grown := read() - before; grown < least {
		t.Errorf("%d bytes counted of %d", grown, least)
	}
}

var sink []byte
