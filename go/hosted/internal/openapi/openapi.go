// Package openapi serves the OpenAPI documents of the built-in kinds from files, which all processes of a machine share.
// A server that makes them itself holds 40 MB for as long as it runs. One that merges them with those of custom
// resources holds 35 MB more.
//
//	build:  a whole server ─► Write ─► FOLDER/v2.{json,pb}, v3.json, v3/GROUP%2FVERSION.{json,pb}
//	start:  Open ─► Install ─► the layer of the built-in kinds has empty documents
//	                              ▲── aggregator: merges them with those of custom resources and aggregated APIs
//	             ─► Join    ─► requests of clients: the aggregator's documents and the files (merge.go)
package openapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/munnerz/goautoneg"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/klog/v2"
)

const (
	jsonType  = "application/json"
	protoType = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	// Older clients ask for this one, and get the other.
	oldProtoType = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
	root         = "v3.json"
	v2           = "v2.json"
	v2Proto      = "v2.pb"
)

var types = map[string]string{jsonType: ".json", protoType: ".pb"}

// discovery is the document of /openapi/v3.
type discovery struct {
	Paths map[string]struct {
		ServerRelativeURL string `json:"serverRelativeURL"`
	} `json:"paths"`
}

// Write writes the documents that a handler serves. A server without one of them is an error.
func Write(folder string, served http.Handler) error {
	if err := os.MkdirAll(filepath.Join(folder, "v3"), 0o755); err != nil {
		return err
	}
	for name, kind := range map[string]string{v2: jsonType, v2Proto: proto2Type} {
		if _, err := save(served, "/openapi/v2", kind, filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	content, err := save(served, "/openapi/v3", jsonType, filepath.Join(folder, root))
	if err != nil {
		return err
	}
	found, err := parse(content)
	if err != nil {
		return err
	}
	for group := range found {
		for kind, ending := range types {
			if _, err := save(served, "/openapi/v3/"+group, kind, file(folder, group, ending)); err != nil {
				return err
			}
		}
	}
	return nil
}

func save(served http.Handler, path, kind, into string) ([]byte, error) {
	asked := httptest.NewRequest(http.MethodGet, path, nil)
	asked.Header.Set("Accept", kind)
	asked = asked.WithContext(request.WithUser(context.Background(), &user.DefaultInfo{Name: user.APIServerUser}))
	got := httptest.NewRecorder()
	served.ServeHTTP(got, asked)
	if got.Code != http.StatusOK || got.Body.Len() == 0 || !strings.HasPrefix(got.Header().Get("Content-Type"), kind) {
		return nil, fmt.Errorf("GET %s as %s: status %d, %s", path, kind, got.Code, got.Header().Get("Content-Type"))
	}
	return got.Body.Bytes(), os.WriteFile(into, got.Body.Bytes(), 0o644)
}

// parse returns the hash of the document of each group and version.
func parse(content []byte) (map[string]string, error) {
	var found discovery
	if err := json.Unmarshal(content, &found); err != nil {
		return nil, err
	}
	hashes := map[string]string{}
	for group, path := range found.Paths {
		address, err := url.Parse(path.ServerRelativeURL)
		if err != nil {
			return nil, err
		}
		hashes[group] = address.Query().Get("hash")
	}
	if !sets.KeySet(hashes).HasAll("api/v1", "apis/apps/v1") {
		return nil, fmt.Errorf("the documents lack built-in kinds: %d groups", len(hashes))
	}
	return hashes, nil
}

func file(folder, group, ending string) string {
	return filepath.Join(folder, "v3", url.PathEscape(group)+ending)
}

// Documents are those in a folder.
type Documents struct {
	folder string
	// hashes has the hash of the document of each group and version, paths what /openapi/v3 says of them.
	hashes map[string]string
	paths  map[string]json.RawMessage
	// etag is of the document of version 2.
	etag string

	lock sync.Mutex
	// last has what was merged last, by its type, as long as a request uses it.
	last map[string]weak.Pointer[merged]
}

// Open returns the documents in a folder. One without any of them is an error.
func Open(folder string) (*Documents, error) {
	content, err := os.ReadFile(filepath.Join(folder, root))
	if err != nil {
		return nil, err
	}
	found := &Documents{folder: folder, last: map[string]weak.Pointer[merged]{}}
	if found.hashes, err = parse(content); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, root), err)
	}
	for group := range found.hashes {
		for _, ending := range types {
			if _, err := os.Stat(file(folder, group, ending)); err != nil {
				return nil, err
			}
		}
	}
	var listed listing
	if err := json.Unmarshal(content, &listed); err != nil {
		return nil, err
	}
	found.paths = listed.Paths
	if _, err := os.Stat(filepath.Join(folder, v2Proto)); err != nil {
		return nil, err
	}
	if content, err = os.ReadFile(filepath.Join(folder, v2)); err != nil {
		return nil, err
	}
	found.etag = hash(content)
	return found, nil
}

// Install has the layer of the built-in kinds serve documents without any, which the aggregator merges with others.
func (d *Documents) Install(onto *mux.PathRecorderMux) {
	onto.Handle("/openapi/v2", document(`{"swagger":"2.0","info":{"title":"Kubernetes","version":""},"paths":{}}`))
	onto.Handle("/openapi/v3", document(`{"paths":{}}`))
}

// document serves a document that never changes. The aggregator is its only client.
func document(content string) http.Handler {
	etag := strconv.Quote(hash([]byte(content)))
	return http.HandlerFunc(func(writer http.ResponseWriter, asked *http.Request) {
		writer.Header().Set("Content-Type", jsonType)
		writer.Header().Set("Etag", etag)
		http.ServeContent(writer, asked, "", time.Time{}, strings.NewReader(content))
	})
}

func hash(content []byte) string { return fmt.Sprintf("%X", sha256.Sum256(content)) }

func serve(writer http.ResponseWriter, asked *http.Request, path string) {
	content, err := os.Open(path)
	if err != nil {
		refuse(writer, err)
		return
	}
	defer content.Close()
	http.ServeContent(writer, asked, "", time.Time{}, content)
}

func refuse(writer http.ResponseWriter, err error) {
	klog.ErrorS(err, "An OpenAPI document cannot be served")
	http.Error(writer, "an OpenAPI document cannot be served", http.StatusInternalServerError)
}

// serveGroup serves a document of version 3 as k8s.io/kube-openapi/pkg/handler3 does.
func (d *Documents) serveGroup(writer http.ResponseWriter, asked *http.Request, group string) {
	etag := d.hashes[group]
	writer.Header().Set("Vary", "Accept")
	accept := asked.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	kind := goautoneg.Negotiate(accept, []string{jsonType, protoType, oldProtoType})
	if kind == oldProtoType {
		kind = protoType
	}
	if kind == "" {
		writer.WriteHeader(http.StatusNotAcceptable)
		return
	}
	writer.Header().Set("Content-Type", kind)
	writer.Header().Set("Etag", strconv.Quote(etag))
	if hash := asked.URL.Query().Get("hash"); hash != "" {
		if hash != etag {
			found := url.URL{Path: "/openapi/v3/" + group, RawQuery: url.Values{"hash": {etag}}.Encode()}
			http.Redirect(writer, asked, found.String(), http.StatusMovedPermanently)
			return
		}
		writer.Header().Set("Cache-Control", "public, immutable")
		writer.Header().Set("Expires", time.Now().AddDate(1, 0, 0).Format(time.RFC1123))
	}
	serve(writer, asked, file(d.folder, group, types[kind]))
}
