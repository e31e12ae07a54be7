// Package activity knows when clients used the API server last, and what its controllers will do next by the clock. An
// operator asks over a Unix socket, and gets the answer as soon as no client has been active for a time: it needs no
// polling, and may then end the process.
//
//	request ─► Tracker: open requests, end of the last one ─┐
//	CronJobs, times of Jobs ─► next event ──────────────────┴─► Unix socket ─► operator
//
// A client is every authenticated user, except those of the settings, nodes, and this process itself. Requests that fail
// authentication or authorization are no activity. A watch counts until its end.
package activity

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
)

// The identities of the controllers: each has a ServiceAccount there. Programs of users may have, too, so that only those
// with the agent of this program are its own. A client that forges the agent merely does not keep the process awake.
const controllerAccounts = "system:serviceaccount:kube-system:"

// The groups of machines with a token to join begin so.
const bootstrappers = "system:bootstrappers"

// Tracker counts the requests of clients.
type Tracker struct {
	ignored map[string]bool
	agent   string
	former  *formerClients

	mutex sync.Mutex
	open  int
	// last is when the last request ended, or the process began.
	last time.Time
	// quiet is closed when the last open request ends; there is none while no request is open.
	quiet chan struct{}
}

// New returns a tracker whose clock begins now.
//
// ignoredUsers are the names of users that are no clients.
func New(ignoredUsers []string) *Tracker {
	found := &Tracker{ignored: map[string]bool{}, agent: rest.DefaultKubernetesUserAgent() + "/", last: time.Now()}
	for _, name := range append([]string{
		user.APIServerUser, user.Anonymous, user.KubeControllerManager,
	}, ignoredUsers...) {
		found.ignored[name] = true
	}
	return found
}

// Report has the answers list the clients of the authorities in a file; "" for none. It comes before Install.
func (t *Tracker) Report(formerAuthorities string) error {
	var err error
	t.former, err = newFormerClients(formerAuthorities)
	return err
}

// Install counts all requests of an API server that pass its authorization.
func (t *Tracker) Install(config *genericapiserver.Config) {
	chain := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(handler http.Handler, config *genericapiserver.Config) http.Handler {
		return chain(t.counted(handler), config)
	}
}

func (t *Tracker) counted(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, asked *http.Request) {
		defer t.former.begin(asked)()
		if !t.isClient(asked) {
			handler.ServeHTTP(writer, asked)
			return
		}
		t.begin()
		// Also for a handler that panics, as those of ended watches do.
		defer t.end()
		handler.ServeHTTP(writer, asked)
	})
}

func (t *Tracker) isClient(asked *http.Request) bool {
	found, ok := request.UserFrom(asked.Context())
	if !ok || t.ignored[found.GetName()] || isNode(found.GetGroups()) {
		return false
	}
	return !strings.HasPrefix(found.GetName(), controllerAccounts) || !strings.HasPrefix(asked.UserAgent()+"/", t.agent)
}

// isNode returns whether a user with these groups is a node, or a machine that is about to become one: kubelets ask again
// and again, whether or not their pods have something to do.
func isNode(groups []string) bool {
	for _, group := range groups {
		if group == user.NodesGroup || strings.HasPrefix(group, bootstrappers) {
			return true
		}
	}
	return false
}

func (t *Tracker) begin() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.open == 0 {
		t.quiet = make(chan struct{})
	}
	t.open++
}

func (t *Tracker) end() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.open--
	t.last = time.Now()
	if t.open == 0 {
		close(t.quiet)
	}
}

// State returns how many requests are open, and for how long none has been.
func (t *Tracker) State() (open int, idle time.Duration) {
	open, idle, _ = t.state()
	return open, idle
}

func (t *Tracker) state() (int, time.Duration, <-chan struct{}) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.open > 0 {
		return t.open, 0, t.quiet
	}
	return 0, time.Since(t.last), nil
}

// Wait returns once no client has been active for a time, or with the error of ctx.
func (t *Tracker) Wait(ctx context.Context, idle time.Duration) error {
	for {
		open, past, quiet := t.state()
		if open == 0 && past >= idle {
			return nil
		}
		var later <-chan time.Time
		if open == 0 {
			timer := time.NewTimer(idle - past)
			defer timer.Stop()
			later = timer.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quiet:
		case <-later:
		}
	}
}
