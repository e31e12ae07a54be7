package openapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"sort"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

func schema(properties ...string) string {
	found := `{"type":"object","properties":{`
	for place, each := range properties {
		if place > 0 {
			found += ","
		}
		found += `"` + each + `":{"type":"string"}`
	}
	return found + "}}"
}

// swaggerOf returns a document with a path and a definition for each group, and one definition that all use.
func swaggerOf(groups ...string) *spec.Swagger {
	return swaggerWith(schema("name"), "pretty", groups...)
}

func swaggerWith(meta, parameter string, groups ...string) *spec.Swagger {
	paths, definitions := []string{}, []string{`"ObjectMeta":` + meta}
	for _, group := range groups {
		name := strings.ReplaceAll(group, "/", ".")
		definitions = append(definitions, `"`+name+`":{"type":"object","properties":{
			"metadata":{"$ref":"#/definitions/ObjectMeta"}}}`)
		paths = append(paths, `"/`+group+`/":{"get":{"parameters":[{"$ref":"#/parameters/pretty"}],
			"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/`+name+`"}}}}}`)
	}
	found := &spec.Swagger{}
	if err := json.Unmarshal([]byte(`{"swagger":"2.0","info":{"title":"Kubernetes","version":"1"},
		"paths":{`+strings.Join(paths, ",")+`},"definitions":{`+strings.Join(definitions, ",")+`},
		"parameters":{"pretty":{"name":"`+parameter+`","in":"query","type":"string"}},
		"securityDefinitions":{"BearerToken":{"type":"apiKey","name":"authorization","in":"header"}},
		"security":[{"BearerToken":[]}]}`), found); err != nil {
		panic(err)
	}
	return found
}

// aggregated returns a server as it stands before the one of the built-in kinds, with groups of its own.
func aggregated(documents *Documents, own ...*spec.Swagger) http.Handler {
	builtIn := mux.NewPathRecorderMux("built-in")
	documents.Install(builtIn)
	found := mux.NewPathRecorderMux("aggregator")
	found.Handle("/openapi/v3", builtIn)
	if len(own) == 0 {
		own = []*spec.Swagger{{SwaggerProps: spec.SwaggerProps{Swagger: "2.0", Info: &spec.Info{}, Paths: &spec.Paths{}}}}
	}
	handler.NewOpenAPIService(own[0]).RegisterOpenAPIVersionedService("/openapi/v2", found)
	return found
}

func parsed(t *testing.T, handler http.Handler) *spec.Swagger {
	t.Helper()
	found := &spec.Swagger{}
	if err := json.Unmarshal([]byte(body(t, get(handler, "/openapi/v2", jsonType))), found); err != nil {
		t.Fatal(err)
	}
	return found
}

// What the aggregator would have made of both documents is the reference.
func TestTheDocumentIsThatOfTheAggregator(t *testing.T) {
	folder := t.TempDir()
	builtIn := []string{"api/v1", "apis/apps/v1"}
	if err := Write(folder, whole(t, builtIn...)); err != nil {
		t.Fatal(err)
	}
	documents, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	for name, own := range map[string]*spec.Swagger{
		"nothing":           swaggerOf(),
		"another group":     swaggerOf("apis/example.com/v1"),
		"a path twice":      swaggerOf("apis/apps/v1", "apis/example.com/v1"),
		"names that differ": swaggerWith(schema("other"), "ugly", "apis/example.com/v1"),
	} {
		t.Run(name, func(t *testing.T) {
			expected := swaggerOf(builtIn...)
			if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(expected, own); err != nil {
				t.Fatal(err)
			}
			content, err := expected.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			reference := &spec.Swagger{}
			if err := json.Unmarshal(content, reference); err != nil {
				t.Fatal(err)
			}
			found := documents.joined(aggregated(documents, own))
			if got := parsed(t, found); !reflect.DeepEqual(got, reference) {
				one, _ := json.MarshalIndent(got, "", " ")
				other, _ := json.MarshalIndent(reference, "", " ")
				t.Errorf("%s\nnot\n%s", one, other)
			}
			for _, accept := range []string{proto2Type, oldProto2Type} {
				if one, other := message(t, found, accept), read(t, content); !reflect.DeepEqual(one, other) {
					t.Errorf("%v\nnot\n%v", one, other)
				}
			}
		})
	}
}

// message returns the names of the parts of the document as protobuf, each of which may be there only once.
func message(t *testing.T, handler http.Handler, accept string) []string {
	t.Helper()
	response := get(handler, "/openapi/v2", accept)
	if kind := response.Header.Get("Content-Type"); kind != proto2Type {
		t.Errorf("%s as %s", accept, kind)
	}
	var found openapi_v2.Document
	if err := proto.Unmarshal([]byte(body(t, response)), &found); err != nil {
		t.Fatal(err)
	}
	return parts(&found)
}

func read(t *testing.T, content []byte) []string {
	t.Helper()
	found, err := openapi_v2.ParseDocument(content)
	if err != nil {
		t.Fatal(err)
	}
	return parts(found)
}

func parts(document *openapi_v2.Document) []string {
	found := []string{document.Swagger, fmt.Sprint(len(document.Security))}
	for _, each := range document.Paths.Path {
		found = append(found, each.Name+" "+each.Value.Get.String())
	}
	for _, each := range document.Definitions.AdditionalProperties {
		found = append(found, each.Name+" "+each.Value.String())
	}
	for _, each := range document.Parameters.AdditionalProperties {
		found = append(found, each.Name)
	}
	for _, each := range document.SecurityDefinitions.AdditionalProperties {
		found = append(found, each.Name)
	}
	// The text of a message has one or two spaces, by chance.
	for place := range found {
		found[place] = strings.Join(strings.Fields(found[place]), " ")
	}
	sort.Strings(found)
	return found
}

func TestClientsThatHaveTheDocumentAreToldSo(t *testing.T) {
	folder := t.TempDir()
	if err := Write(folder, whole(t, "api/v1", "apis/apps/v1", "apis/apps/v2", "apis/apps/v3", "apis/apps/v4", "apis/apps/v5")); err != nil {
		t.Fatal(err)
	}
	documents, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	first := documents.joined(aggregated(documents, swaggerOf("apis/example.com/v1")))
	other := documents.joined(aggregated(documents, swaggerOf("apis/example.com/v2")))
	etag := get(first, "/openapi/v2", "").Header.Get("Etag")
	for handler, expected := range map[*http.Handler]int{&first: http.StatusNotModified, &other: http.StatusOK} {
		asked, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "/openapi/v2", nil)
		asked.Header.Set("If-None-Match", etag)
		if got := do(*handler, asked); got.StatusCode != expected {
			t.Errorf("%d, not %d", got.StatusCode, expected)
		}
	}
	if got := get(first, "/openapi/v2", "text/html"); got.StatusCode != http.StatusNotAcceptable {
		t.Error(got.StatusCode)
	}
	asked, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "/openapi/v2", nil)
	asked.Header.Set("Accept-Encoding", "gzip")
	if got := do(first, asked); got.Header.Get("Content-Encoding") != "gzip" {
		t.Error("the document is not compressed")
	}
}

// A refusal of the server behind it must not become the document of the built-in kinds alone.
func TestRefusalsArePassedOn(t *testing.T) {
	folder := t.TempDir()
	if err := Write(folder, whole(t, "api/v1", "apis/apps/v1")); err != nil {
		t.Fatal(err)
	}
	documents, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	found := documents.joined(http.HandlerFunc(func(writer http.ResponseWriter, asked *http.Request) {
		if seen, ok := request.UserFrom(asked.Context()); !ok || seen.GetName() != "who" {
			t.Error("the server does not see who asks")
		}
		http.Error(writer, "not yet", http.StatusServiceUnavailable)
	}))
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/example.com/v1", "/other"} {
		asked, _ := http.NewRequestWithContext(
			request.WithUser(context.Background(), &user.DefaultInfo{Name: "who"}), http.MethodGet, path, nil)
		if got := do(found, asked); got.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
}

// Otherwise, as many documents as requests would be in memory.
func TestRequestsAtTheSameTimeShareADocument(t *testing.T) {
	folder := t.TempDir()
	if err := Write(folder, whole(t, "api/v1", "apis/apps/v1")); err != nil {
		t.Fatal(err)
	}
	documents, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	content, err := swaggerOf("apis/example.com/v1").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	merge := func(kind, etag string) *merged {
		found, err := documents.whole(content, kind, etag)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	first := merge(jsonType, "1")
	if merge(jsonType, "1") != first {
		t.Error("the document is made twice")
	}
	if merge(proto2Type, "1") == first {
		t.Error("a document of another type")
	}
	if merge(jsonType, "2") == first {
		t.Error("an old document")
	}
	runtime.KeepAlive(first)
	runtime.GC()
	for kind, each := range documents.last {
		if each.Value() != nil {
			t.Errorf("the document as %s is kept", kind)
		}
	}
}

// The heap after a request is the one before it: what was merged is not kept.
func TestMergedDocumentsAreForgotten(t *testing.T) {
	folder := t.TempDir()
	groups := []string{"api/v1", "apis/apps/v1"}
	for number := range 2000 {
		groups = append(groups, fmt.Sprintf("apis/group%d/v1", number))
	}
	if err := Write(folder, whole(t, groups...)); err != nil {
		t.Fatal(err)
	}
	documents, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	found := documents.joined(aggregated(documents, swaggerOf("apis/example.com/v1")))
	size := 0
	ask := func() {
		for _, accept := range []string{jsonType, proto2Type} {
			size = len(body(t, get(found, "/openapi/v2", accept)))
		}
	}
	// The first request fills pools, and the other documents of the server.
	ask()
	before := heap()
	for range 5 {
		ask()
	}
	if grown := int64(heap()) - int64(before); grown > int64(size)/4 {
		t.Errorf("%d bytes stay after documents of %d", grown, size)
	}
	runtime.KeepAlive(found)
}

func heap() uint64 {
	var found runtime.MemStats
	// Twice: finalizers and pools keep things for one collection.
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&found)
	return found.HeapAlloc
}
