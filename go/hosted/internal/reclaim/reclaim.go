// Package reclaim returns memory to the system after work. A Go program keeps what a burst of requests needed until its
// next collections, which an idle program does not reach for minutes.
package reclaim

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	interval = 20 * time.Second
	// least is how much must have been allocated since the last time, so that a program at rest is left alone.
	least = 32 << 20
	// most is how many intervals the gauge waits for one without work.
	most      = 3
	allocated = "/gc/heap/allocs:bytes"
)

// Run returns memory until ctx ends.
func Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var found gauge
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if found.isDue(read()) {
				// Pools keep what is in them for one collection.
				runtime.GC()
				debug.FreeOSMemory()
			}
		}
	}
}

func read() uint64 {
	sample := []metrics.Sample{{Name: allocated}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// gauge decides when memory is returned: after an interval with less work than `least`, or after `most` intervals.
type gauge struct {
	// last and returned are what had been allocated at the end of the last interval, and when memory was returned last.
	last, returned uint64
	waited         int
}

// isDue takes what has been allocated since the start of the program, at the end of each interval.
func (g *gauge) isDue(now uint64) bool {
	isBusy := now-g.last >= least
	g.last = now
	if now-g.returned < least {
		return false
	}
	if g.waited++; isBusy && g.waited < most {
		return false
	}
	g.returned, g.waited = now, 0
	return true
}
