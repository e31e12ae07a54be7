package watchbound_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"tenantry.dev/controlplane/internal/watchbound"
)

// send returns the query that the API server sees.
func send(verb, query string, bound int64) string {
	var seen string
	handler := watchbound.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = r.URL.RawQuery
	}), bound)
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?"+query, nil)
	info := &request.RequestInfo{Verb: verb}
	handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(request.WithRequestInfo(r.Context(), info)))
	return seen
}

func TestWatchesThatEndInTimeAndOtherRequestsStayAsTheyAre(t *testing.T) {
	for _, test := range []struct{ verb, query string }{
		{"watch", "watch=1&timeoutSeconds=100"},
		{"watch", "watch=1&timeoutSeconds=7&timeoutSeconds=99999"},
		{"watch", "watch=1&timeoutSeconds=-1"},
		{"watch", "watch=1&timeoutSeconds=soon"},
		{"list", "timeoutSeconds=99999"},
	} {
		if got := send(test.verb, test.query, 100); got != test.query {
			t.Errorf("%s %s became %s", test.verb, test.query, got)
		}
	}
	if got := send("watch", "watch=1&timeoutSeconds=99999", 0); got != "watch=1&timeoutSeconds=99999" {
		t.Errorf("without a bound the query became %s", got)
	}
}

func TestLongerWatchesEndAtTheBound(t *testing.T) {
	for _, query := range []string{
		"watch=1",
		"watch=1&timeoutSeconds=",
		"watch=1&timeoutSeconds=0",
		"watch=1&timeoutSeconds=101",
		"watch=1&timeoutSeconds=86400&timeoutSeconds=1",
		"watch=1&timeoutSeconds=9223372036854775807",
	} {
		for _, bound := range []int64{1, 3, 100} {
			r := httptest.NewRequest(http.MethodGet, "/?"+send("watch", query, bound), nil)
			values := r.URL.Query()["timeoutSeconds"]
			if len(values) != 1 || r.URL.Query().Get("watch") != "1" {
				t.Fatalf("%s became %s", query, r.URL.RawQuery)
			}
			if got, err := strconv.ParseInt(values[0], 10, 64); err != nil || got < 1 || got > bound {
				t.Errorf("%s with bound %d ends after %s s", query, bound, values[0])
			}
		}
	}
}
