package plane

import (
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/util/workqueue"
	identity "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// Packages of Kubernetes set a provider of metrics too; internal/plane imports them.
func TestQueuesDoNotWakeTheProcess(t *testing.T) {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "queue"})
	defer queue.ShutDown()
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if strings.Contains(string(stacks), "updateUnfinishedWork") {
		t.Errorf("the queue has metrics:\n%s", stacks)
	}
}

// A lease that ends while the API server runs is deleted.
func TestTheIdentityIsRenewedInTime(t *testing.T) {
	if renewals := identity.IdentityLeaseDurationSeconds / int(identityInterval.Seconds()); renewals < 3 {
		t.Errorf("%d renewals in the time of the lease", renewals)
	}
}
