// Package watchbound limits how long a watch stays open. It stands apart so that its test need not
// link all of Kubernetes.
//
// The API server checks rights when a watch begins, and a client may ask for any timeoutSeconds. So
// a user who has lost its rights would go on reading until it closes the connection. Clients begin a
// new watch when one ends, as they do for the timeouts that Kubernetes' own clients ask for.
package watchbound

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"

	"k8s.io/apiserver/pkg/endpoints/request"
)

const parameter = "timeoutSeconds"

// earliest is the part of the bound after which a watch may end. Watches that began together, as
// after a restart of the server, must not all begin again at once.
const earliest = 0.75

// Handler returns a handler that gives every watch a timeoutSeconds of at most bound seconds; with a
// bound of 0 it changes nothing. It needs the RequestInfo of the request's context.
func Handler(next http.Handler, bound int64) http.Handler {
	if bound <= 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if ok && info.Verb == "watch" {
			r = clamped(r, bound)
		}
		next.ServeHTTP(w, r)
	})
}

func clamped(r *http.Request, bound int64) *http.Request {
	query := r.URL.Query()
	if isWithin(query, bound) {
		return r
	}
	lowest := max(int64(float64(bound)*earliest), 1)
	query.Set(parameter, strconv.FormatInt(lowest+rand.Int64N(bound-lowest+1), 10))
	// The caller's request stays as it is: the server logs and audits its URL.
	shallow := *r
	address := *r.URL
	address.RawQuery = query.Encode()
	shallow.URL = &address
	return &shallow
}

// isWithin reports whether the server would end the watch in time, or refuse it.
func isWithin(query url.Values, bound int64) bool {
	values := query[parameter]
	// The server takes the first value, and replaces an empty one and 0 by a timeout of its own.
	if len(values) == 0 || values[0] == "" {
		return false
	}
	asked, err := strconv.ParseInt(values[0], 10, 64)
	return err != nil || asked < 0 || 0 < asked && asked <= bound
}
