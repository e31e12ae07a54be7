package reclaim

import (
	"runtime"
	"runtime/debug"
)

// first is how much memory a start takes before the first collection. A control plane at rest has more, so that this
// memory is in use then. With a small heap from the start, a third of the CPU of a start would go into collections.
const first = 56 << 20

// DelayFirst has the collector begin at that size, and then go on as the environment says.
func DelayFirst() {
	percent := debug.SetGCPercent(-1)
	limit := debug.SetMemoryLimit(-1)
	if limit <= first {
		debug.SetGCPercent(percent)
		return
	}
	debug.SetMemoryLimit(first)
	afterCollection(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// afterCollection calls a function after the next collection.
func afterCollection(call func()) {
	sentinel := new([16]byte)
	runtime.AddCleanup(sentinel, func(call func()) { call() }, call)
}
