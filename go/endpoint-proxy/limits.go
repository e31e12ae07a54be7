package main

import "sync/atomic"

const (
	// maxOpen is how many connections one control plane has at most.
	maxOpen = 512
	// maxHeld is how many of them are held at most: many pods may wait for one control plane.
	maxHeld = 256
	// maxRefused is how many of them get a 503 at the same time, and maxRefusedAll how many of all control planes.
	maxRefused    = 32
	maxRefusedAll = 128
	// maxOperator is how many connections of the operator each has, beside those.
	maxOperator = 64
	// keptFiles are descriptors for listeners, waiters and the 503s.
	keptFiles = 512
)

// limit counts what is in use.
type limit struct {
	used atomic.Int64
	most *atomic.Int64
}

func newLimit(most int64) limit {
	bound := &atomic.Int64{}
	bound.Store(most)
	return limit{most: bound}
}

// take returns whether there is one more.
func (l *limit) take() bool {
	if l.used.Add(1) > l.most.Load() {
		l.used.Add(-1)
		return false
	}
	return true
}

func (l *limit) give() {
	l.used.Add(-1)
}

// limits divides the descriptors of this process among the control planes: the users of one cannot take those of another.
type limits struct {
	files   int
	most    atomic.Int64
	refused atomic.Int64
}

// share is what one control plane may use.
type share struct {
	open, held, refused, operator, nodes limit

	newcomers newcomers
	// At the port of the operator: a flood at the public port ends none of them.
	operatorNewcomers newcomers
	// At the port of machines, which has as many connections as the public one: a kubelet has three to five.
	nodesNewcomers newcomers
	peers          peers
}

func newLimits(files int) *limits {
	made := &limits{files: files}
	made.divide(1)
	return made
}

// divide sets how many connections and 503s each of so many control planes may have. Those above it stay.
func (l *limits) divide(many int) {
	// Each connection has two descriptors.
	// There is a quarter as many newcomers, with one each. All of that twice, for users and for machines.
	fair := int64(max(l.files-keptFiles, 64)) * 2 / 9 / int64(max(many, 1))
	l.most.Store(max(min(fair, maxOpen), 1))
	l.refused.Store(max(min(maxRefusedAll/int64(max(many, 1)), maxRefused), 1))
}

func (l *limits) share() *share {
	return &share{
		open:              limit{most: &l.most},
		held:              newLimit(maxHeld),
		refused:           limit{most: &l.refused},
		operator:          newLimit(maxOperator),
		nodes:             limit{most: &l.most},
		newcomers:         newcomers{most: func() int { return int(max(l.most.Load()/4, 1)) }},
		operatorNewcomers: newcomers{most: func() int { return maxOperator }},
		nodesNewcomers:    newcomers{most: func() int { return int(max(l.most.Load()/4, 1)) }},
		peers:             peers{used: map[string]int64{}},
	}
}
