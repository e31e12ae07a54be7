// Package queues keeps the queues of controllers without metrics: with them, each of the 66 queues wakes the process
// twice a second.
//
// The first provider of metrics stays, and packages of Kubernetes set theirs when they are initialised. Go initialises
// packages in the order of their import paths, as far as their imports allow: this one is in a module of its own, so
// that its path is before theirs.
package queues

import (
	_ "unsafe" // go:linkname

	"k8s.io/client-go/util/workqueue"
)

// provider is the one that Kubernetes begins with. It does nothing, and only it keeps the queues from waking.
//
//go:linkname provider k8s.io/client-go/util/workqueue.globalMetricsProvider
var provider workqueue.MetricsProvider

func init() {
	workqueue.SetProvider(provider)
}
