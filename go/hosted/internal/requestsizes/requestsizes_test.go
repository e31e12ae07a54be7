package requestsizes

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// serve returns a server with a chain, and how many requests have reached the chain.
func serve(t *testing.T) (*httptest.Server, *int) {
	t.Helper()
	reached := 0
	chain := func(handler http.Handler, _ *genericapiserver.Config) http.Handler {
		return http.HandlerFunc(func(writer http.ResponseWriter, asked *http.Request) {
			reached++
			handler.ServeHTTP(writer, asked)
		})
	}
	config := &genericapiserver.Config{BuildHandlerChainFunc: chain}
	Bound(config)
	last := http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) { writer.WriteHeader(http.StatusForbidden) })
	server := httptest.NewUnstartedServer(config.BuildHandlerChainFunc(last, config))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, &reached
}

func TestLongRequestsAreRefusedBeforeTheChain(t *testing.T) {
	server, reached := serve(t)
	for name, each := range map[string]struct {
		method, uri, header string
		size, code          int
	}{
		"URI":                {uri: "/x?" + strings.Repeat("a", 900_000), code: http.StatusRequestURITooLong},
		"URI by one":         {uri: "/" + strings.Repeat("a", LongestURI), code: http.StatusRequestURITooLong},
		"User-Agent":         {header: "User-Agent", size: LongestHeader + 1, code: http.StatusRequestHeaderFieldsTooLarge},
		"addresses":          {header: "X-Forwarded-For", size: 900_000, code: http.StatusRequestHeaderFieldsTooLarge},
		"ID":                 {header: "audit-id", size: LongestHeader + 1, code: http.StatusRequestHeaderFieldsTooLarge},
		"method":             {method: strings.Repeat("A", LongestMethod+1), code: http.StatusNotImplemented},
		"longest URI":        {uri: "/" + strings.Repeat("a", LongestURI-1), code: http.StatusForbidden},
		"longest User-Agent": {header: "User-Agent", size: LongestHeader, code: http.StatusForbidden},
		"a token":            {header: "Authorization", size: 64 << 10, code: http.StatusForbidden},
		"a request":          {uri: "/api/v1/pods?labelSelector=app%3Dweb", code: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			before := *reached
			asked, err := http.NewRequestWithContext(t.Context(), each.method, server.URL+each.uri, nil)
			if err != nil {
				t.Fatal(err)
			}
			if each.header != "" {
				asked.Header.Set(each.header, strings.Repeat("1", each.size))
			}
			found, err := server.Client().Do(asked)
			if err != nil {
				t.Fatal(err)
			}
			defer found.Body.Close()
			if found.StatusCode != each.code {
				t.Errorf("got %d, want %d", found.StatusCode, each.code)
			}
			if passed := each.code == http.StatusForbidden; passed != (*reached > before) {
				t.Errorf("reached the chain: %v", !passed)
			} else if !passed {
				var status metav1.Status
				err := json.NewDecoder(found.Body).Decode(&status)
				if err != nil || status.Kind != "Status" || int(status.Code) != each.code || status.Message == "" {
					t.Errorf("the body is %+v, %v", status, err)
				}
			}
		})
	}
}
