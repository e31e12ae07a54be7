package forwarded

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/client-go/tools/cache"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"tenantry.dev/hosted/internal/settings"
)

const root = "/apis/things.example.com/v1beta1"

func group(socket string) settings.Forwarded {
	return settings.Forwarded{
		Socket: socket, Group: "things.example.com", Version: "v1beta1",
		Resources: []settings.ForwardedResource{
			{Name: "pods", Kind: "PodThing", Namespaced: true}, {Name: "nodes", Kind: "NodeThing"},
		},
	}
}

func served(t *testing.T, answer http.HandlerFunc) *Handler {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: answer}}
	server.Start()
	t.Cleanup(server.Close)
	handler := newHandler(group(socket))
	handler.served.Store(true)
	return handler
}

func ask(handler http.Handler, method, target string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, target, nil)
	request.Header.Set("Authorization", "Bearer secret")
	request.Header.Set("X-Remote-User", "alice")
	found := httptest.NewRecorder()
	handler.ServeHTTP(found, request)
	return found
}

func TestTheProcessGetsPathAndQueryAndNoCredentials(t *testing.T) {
	handler := served(t, func(w http.ResponseWriter, asked *http.Request) {
		for _, name := range []string{"Authorization", "X-Remote-User"} {
			if asked.Header.Get(name) != "" {
				t.Errorf("the process got %s", name)
			}
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, "{%q: %q}", "asked", asked.URL.RequestURI())
	})
	found := ask(handler, http.MethodGet, root+"/namespaces/a%2Fb/pods?labelSelector=x%3Dy")
	want := `{"asked": "` + root + `/namespaces/a%2Fb/pods?labelSelector=x%3Dy"}`
	if found.Code != http.StatusNotFound || found.Body.String() != want {
		t.Errorf("got %d %s, want %s", found.Code, found.Body, want)
	}
}

func TestOtherRequestsAreNotForwarded(t *testing.T) {
	handler := served(t, func(http.ResponseWriter, *http.Request) { t.Error("the process was asked") })
	for target, want := range map[string]int{
		http.MethodPost + " " + root + "/pods":        http.StatusMethodNotAllowed,
		http.MethodDelete + " " + root + "/nodes/a":   http.StatusMethodNotAllowed,
		http.MethodGet + " " + root + "/pods?watch=1": http.StatusMethodNotAllowed,
		http.MethodGet + " " + root:                   http.StatusOK,
		http.MethodGet + " " + root + "/":             http.StatusOK,
	} {
		method, path, _ := strings.Cut(target, " ")
		if found := ask(handler, method, path); found.Code != want {
			t.Errorf("%s: got %d, want %d", target, found.Code, want)
		}
	}
	handler.served.Store(false)
	if found := ask(handler, http.MethodGet, root+"/pods"); found.Code != http.StatusNotFound {
		t.Errorf("without an APIService: got %d", found.Code)
	}
}

func TestAnswersThatAreNoneAreUnavailable(t *testing.T) {
	silent := newHandler(group(filepath.Join(t.TempDir(), "none")))
	silent.served.Store(true)
	text := served(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") })
	for _, handler := range []*Handler{silent, text} {
		// The request ends before the wait for the process.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		found := httptest.NewRecorder()
		handler.ServeHTTP(found, httptest.NewRequestWithContext(ctx, http.MethodGet, root+"/pods", nil))
		var status metav1.Status
		if err := json.Unmarshal(found.Body.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		if found.Code != http.StatusServiceUnavailable || status.Kind != "Status" || strings.Contains(status.Message, "/") {
			t.Errorf("got %d %s", found.Code, found.Body)
		}
	}
}

func TestTheGroupExistsWhileAnAPIServiceWithoutAServiceHasIt(t *testing.T) {
	handler, discovery := newHandler(group("s")), aggregated.NewResourceManager("apis")
	local := &apiregistration.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1beta1.things.example.com"},
		Spec:       apiregistration.APIServiceSpec{GroupPriorityMinimum: 100, VersionPriority: 100},
	}
	other := local.DeepCopy()
	other.Name = "v1.things.example.com"
	remote := local.DeepCopy()
	remote.Spec.Service = &apiregistration.ServiceReference{Namespace: "default", Name: "mine"}

	isListed := func() bool {
		request := httptest.NewRequest(http.MethodGet, "/apis", nil)
		request.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		found := httptest.NewRecorder()
		discovery.ServeHTTP(found, request)
		return strings.Contains(found.Body.String(), "PodThing")
	}
	for step, each := range []struct {
		object any
		exists bool
		want   bool
	}{
		{other, true, false},
		{local, true, true},
		{local, true, true},
		{other, false, true},
		{remote, true, false},
		{local, true, true},
		{cache.DeletedFinalStateUnknown{Obj: local}, false, false},
	} {
		handler.follow(each.object, each.exists, discovery)
		if handler.served.Load() != each.want || isListed() != each.want {
			t.Errorf("step %d: served %v, listed %v, want %v", step, handler.served.Load(), isListed(), each.want)
		}
	}
}
