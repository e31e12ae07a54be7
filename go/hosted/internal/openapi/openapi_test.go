package openapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// whole returns a server that makes its documents itself, as Kubernetes does.
func whole(t *testing.T, groups ...string) *mux.PathRecorderMux {
	t.Helper()
	found := mux.NewPathRecorderMux("whole")
	service := handler3.NewOpenAPIService()
	for _, group := range groups {
		service.UpdateGroupVersion(group, &spec3.OpenAPI{Version: "3.0.0", Info: &spec.Info{
			InfoProps: spec.InfoProps{Title: group, Version: "1"}}, Paths: &spec3.Paths{}})
	}
	if err := service.RegisterOpenAPIV3VersionedService("/openapi/v3", found); err != nil {
		t.Fatal(err)
	}
	handler.NewOpenAPIService(swaggerOf(groups...)).RegisterOpenAPIVersionedService("/openapi/v2", found)
	return found
}

func get(handler http.Handler, path, accept string) *http.Response {
	asked := httptest.NewRequest(http.MethodGet, path, nil)
	if accept != "" {
		asked.Header.Set("Accept", accept)
	}
	return do(handler, asked)
}

func do(handler http.Handler, asked *http.Request) *http.Response {
	got := httptest.NewRecorder()
	handler.ServeHTTP(got, asked)
	return got.Result()
}

func body(t *testing.T, response *http.Response) string {
	t.Helper()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// The responses must be those of a server that makes its documents itself, whatever an upgrade changes there.
func TestResponsesAreThoseOfAWholeServer(t *testing.T) {
	folder := t.TempDir()
	original := whole(t, "api/v1", "apis/apps/v1", ".well-known/openid-configuration")
	if err := Write(folder, original); err != nil {
		t.Fatal(err)
	}
	documents, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	found := documents.joined(aggregated(documents))
	hash := strings.Trim(get(original, "/openapi/v3/apis/apps/v1", "").Header.Get("Etag"), `"`)
	if hash == "" {
		t.Fatal("no hash")
	}
	for _, path := range []string{
		"/openapi/v3", "/openapi/v3/api/v1", "/openapi/v3/.well-known/openid-configuration",
		"/openapi/v3/apis/apps/v1?hash=" + hash, "/openapi/v3/apis/apps/v1?hash=old",
	} {
		for _, accept := range []string{"", "*/*", jsonType, protoType, oldProtoType, "text/html, application/json;q=0.5"} {
			one, other := get(original, path, accept), get(found, path, accept)
			if one.StatusCode != other.StatusCode || body(t, one) != body(t, other) {
				t.Errorf("%s as %q: %d, not %d", path, accept, other.StatusCode, one.StatusCode)
			}
			for _, name := range []string{"Content-Type", "Cache-Control", "Location", "Vary"} {
				if one.Header.Get(name) != other.Header.Get(name) {
					t.Errorf("%s as %q: %s is %q, not %q", path, accept, name, other.Header.Get(name), one.Header.Get(name))
				}
			}
		}
	}
	if got := get(found, "/openapi/v3/api/v1", "text/html"); got.StatusCode != http.StatusNotAcceptable {
		t.Error(got.StatusCode)
	}
	for _, path := range []string{"/openapi/v3/apis/other/v1", "/openapi/v3/../v2.json", "/openapi/v3/"} {
		if got := get(found, path, ""); got.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
}

func TestIncompleteDocumentsAreAnError(t *testing.T) {
	if err := Write(t.TempDir(), whole(t, "apis/apps/v1")); err == nil || !strings.Contains(err.Error(), "built-in") {
		t.Error(err)
	}
	if err := Write(t.TempDir(), mux.NewPathRecorderMux("none")); err == nil {
		t.Error("documents of a server that has none")
	}
	for _, missing := range []string{v2, v2Proto, root, "v3/api%2Fv1.pb"} {
		folder := t.TempDir()
		if err := Write(folder, whole(t, "api/v1", "apis/apps/v1")); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(folder, missing)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(folder); err == nil {
			t.Errorf("opened without %s", missing)
		}
	}
}
