package reclaim

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// A program that stayed without a limit, or with the small one of the start, would grow or thrash.
func TestTheCollectorGoesOnAsConfigured(t *testing.T) {
	const percent, limit = 37, 3 << 30
	formerPercent, formerLimit := debug.SetGCPercent(percent), debug.SetMemoryLimit(limit)
	t.Cleanup(func() {
		debug.SetGCPercent(formerPercent)
		debug.SetMemoryLimit(formerLimit)
	})
	DelayFirst()
	if found := debug.SetMemoryLimit(-1); found != first {
		t.Errorf("the first collection begins at %d bytes", found)
	}
	// Cleanups run in a goroutine after the collection.
	deadline := time.Now().Add(10 * time.Second)
	for debug.SetMemoryLimit(-1) == first && time.Now().Before(deadline) {
		runtime.GC()
	}
	if found := debug.SetMemoryLimit(-1); found != limit {
		t.Errorf("the limit is %d bytes after the first collection", found)
	}
	if found := debug.SetGCPercent(percent); found != percent {
		t.Errorf("GOGC is %d after the first collection", found)
	}
	debug.SetMemoryLimit(first / 2)
	DelayFirst()
	if found := debug.SetMemoryLimit(-1); found != first/2 {
		t.Errorf("the limit of a smaller process is %d bytes", found)
	}
}
