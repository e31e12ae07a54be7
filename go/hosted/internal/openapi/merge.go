package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"weak"

	"github.com/NYTimes/gziphandler"
	"github.com/munnerz/goautoneg"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	proto2Type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	// Older clients ask for this one, and get the other.
	oldProto2Type = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
)

// listing is the document of /openapi/v3, without a look into its parts.
type listing struct {
	Paths map[string]json.RawMessage `json:"paths"`
}

// swagger is a document of version 2, with only its large parts taken apart.
type swagger struct {
	Paths       map[string]json.RawMessage `json:"paths"`
	Definitions map[string]json.RawMessage `json:"definitions"`
	Parameters  map[string]json.RawMessage `json:"parameters"`
}

// Join has an API server answer clients with its own documents and those of the built-in kinds. What has been merged is
// forgotten when the last request that uses it was answered.
func (d *Documents) Join(config *genericapiserver.Config) {
	chain := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(served http.Handler, config *genericapiserver.Config) http.Handler {
		return chain(d.joined(served), config)
	}
}

func (d *Documents) joined(own http.Handler) http.Handler {
	whole := gziphandler.GzipHandler(http.HandlerFunc(func(writer http.ResponseWriter, asked *http.Request) {
		d.serveWhole(writer, asked, own)
	}))
	return http.HandlerFunc(func(writer http.ResponseWriter, asked *http.Request) {
		switch path := asked.URL.Path; {
		case path == "/openapi/v2":
			whole.ServeHTTP(writer, asked)
		case path == "/openapi/v3":
			d.serveListing(writer, asked, own)
		default:
			if group, isGroup := strings.CutPrefix(path, "/openapi/v3/"); isGroup {
				if _, known := d.hashes[group]; known {
					d.serveGroup(writer, asked, group)
					return
				}
			}
			own.ServeHTTP(writer, asked)
		}
	})
}

// ask returns the server's own answer to a request, as JSON.
func ask(own http.Handler, asked *http.Request) *httptest.ResponseRecorder {
	inner := asked.Clone(asked.Context())
	inner.Method = http.MethodGet
	inner.Header = http.Header{"Accept": {jsonType}}
	got := httptest.NewRecorder()
	own.ServeHTTP(got, inner)
	return got
}

// pass sends an answer that cannot be merged, such as a refusal.
func pass(writer http.ResponseWriter, got *httptest.ResponseRecorder) {
	for name, values := range got.Header() {
		writer.Header()[name] = values
	}
	writer.WriteHeader(got.Code)
	_, _ = writer.Write(got.Body.Bytes())
}

func (d *Documents) serveListing(writer http.ResponseWriter, asked *http.Request, own http.Handler) {
	got := ask(own, asked)
	if got.Code != http.StatusOK {
		pass(writer, got)
		return
	}
	var found listing
	if err := json.Unmarshal(got.Body.Bytes(), &found); err != nil {
		refuse(writer, err)
		return
	}
	whole := listing{Paths: map[string]json.RawMessage{}}
	for _, each := range []map[string]json.RawMessage{found.Paths, d.paths} {
		for group, path := range each {
			whole.Paths[group] = path
		}
	}
	content, err := json.Marshal(whole)
	if err != nil {
		refuse(writer, err)
		return
	}
	writer.Header().Set("Content-Type", jsonType)
	http.ServeContent(writer, asked, "/openapi/v3", time.Now(), bytes.NewReader(content))
}

// serveWhole serves the document of version 2 as k8s.io/kube-openapi/pkg/handler does.
func (d *Documents) serveWhole(writer http.ResponseWriter, asked *http.Request, own http.Handler) {
	writer.Header().Add("Vary", "Accept")
	kind := negotiate(asked.Header.Get("Accept"))
	if kind == "" {
		writer.WriteHeader(http.StatusNotAcceptable)
		return
	}
	got := ask(own, asked)
	if got.Code != http.StatusOK {
		pass(writer, got)
		return
	}
	etag := strconv.Quote(hash([]byte(d.etag + got.Header().Get("Etag"))))
	writer.Header().Set("Etag", etag)
	if asked.Header.Get("If-None-Match") == etag {
		writer.WriteHeader(http.StatusNotModified)
		return
	}
	found, err := d.whole(got.Body.Bytes(), kind, etag)
	if err != nil {
		writer.Header().Del("Etag")
		refuse(writer, err)
		return
	}
	writer.Header().Set("Content-Type", kind)
	http.ServeContent(writer, asked, "/openapi/v2", time.Time{}, bytes.NewReader(found.content))
	runtime.KeepAlive(found)
}

// merged is a document for as long as a request uses it.
type merged struct {
	etag    string
	content []byte
}

// whole returns a merged document, which requests at the same time share; one is made at a time. Many requests would
// otherwise need more memory than the process may have.
func (d *Documents) whole(own []byte, kind, etag string) (*merged, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if found := d.last[kind].Value(); found != nil && found.etag == etag {
		return found, nil
	}
	content, err := d.merge(own, kind)
	if err != nil {
		return nil, err
	}
	found := &merged{etag: etag, content: content}
	d.last[kind] = weak.Make(found)
	return found, nil
}

func negotiate(accept string) string {
	if accept == "" {
		accept = "*/*"
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, offer := range []string{jsonType, oldProto2Type, proto2Type} {
			main, sub, _ := strings.Cut(offer, "/")
			if (clause.Type == main || clause.Type == "*") && (clause.SubType == sub || clause.SubType == "*") {
				if offer == oldProto2Type {
					return proto2Type
				}
				return offer
			}
		}
	}
	return ""
}

// merge adds a document to the one of the built-in kinds, as the aggregator does.
func (d *Documents) merge(content []byte, kind string) ([]byte, error) {
	builtIn, err := os.ReadFile(filepath.Join(d.folder, v2))
	if err != nil {
		return nil, err
	}
	var parts swagger
	if err := json.Unmarshal(builtIn, &parts); err != nil {
		return nil, err
	}
	added, err := parts.additions(content)
	if err != nil {
		return nil, err
	}
	if kind == proto2Type {
		return d.appendProto(added)
	}
	return splice(builtIn, &parts, added)
}

// additions returns the part of a document that another one lacks. What both have under one name and not alike gets
// another name.
func (s *swagger) additions(content []byte) (*spec.Swagger, error) {
	own := &spec.Swagger{}
	if err := own.UnmarshalJSON(content); err != nil {
		return nil, err
	}
	// The aggregator compares only what has the same name: the rest of the large document is left as it is.
	merged, err := s.shared(own)
	if err != nil {
		return nil, err
	}
	known := map[string]map[string]bool{
		"paths": names(merged.Paths.Paths), "definitions": names(merged.Definitions), "parameters": names(merged.Parameters),
	}
	if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(merged, own); err != nil {
		return nil, err
	}
	// That those shared are used by more groups now is left out, as is the rest of the document, which is the same.
	drop(merged.Paths.Paths, known["paths"])
	drop(merged.Definitions, known["definitions"])
	drop(merged.Parameters, known["parameters"])
	return &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: own.Swagger, Info: own.Info, Paths: merged.Paths, Definitions: merged.Definitions,
		Parameters: merged.Parameters,
	}}, nil
}

func (s *swagger) shared(own *spec.Swagger) (*spec.Swagger, error) {
	found := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Paths:       &spec.Paths{Paths: map[string]spec.PathItem{}},
		Definitions: spec.Definitions{}, Parameters: map[string]spec.Parameter{},
	}}
	if own.Paths == nil {
		return found, nil
	}
	for path := range own.Paths.Paths {
		if _, known := s.Paths[path]; known {
			found.Paths.Paths[path] = spec.PathItem{}
		}
	}
	if err := pick(s.Definitions, own.Definitions, found.Definitions); err != nil {
		return nil, err
	}
	return found, pick(s.Parameters, own.Parameters, found.Parameters)
}

// pick parses the parts that have the name of another one, or one that the aggregator may give it.
func pick[T any](parts map[string]json.RawMessage, own, into map[string]T) error {
	for name := range own {
		for number := 1; ; number++ {
			if number > 1 {
				name = fmt.Sprintf("%s_v%d", strings.TrimSuffix(name, fmt.Sprintf("_v%d", number-1)), number)
			}
			content, known := parts[name]
			if !known {
				break
			}
			var part T
			if err := json.Unmarshal(content, &part); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			into[name] = part
		}
	}
	return nil
}

func names[T any](parts map[string]T) map[string]bool {
	found := map[string]bool{}
	for name := range parts {
		found[name] = true
	}
	return found
}

func drop[T any](parts map[string]T, known map[string]bool) {
	for name := range known {
		delete(parts, name)
	}
}

// splice adds the parts to the document, whose other fields stay as they are. encoding/json would keep buffers of the size
// of the document.
func splice(builtIn []byte, parts *swagger, added *spec.Swagger) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(builtIn, &fields); err != nil {
		return nil, err
	}
	var whole bytes.Buffer
	whole.Grow(len(builtIn) + len(builtIn)/4)
	for place, name := range slices.Sorted(maps.Keys(fields)) {
		begin(&whole, place, name)
		var err error
		switch name {
		case "paths":
			err = write(&whole, parts.Paths, added.Paths.Paths)
		case "definitions":
			err = write(&whole, parts.Definitions, added.Definitions)
		case "parameters":
			err = write(&whole, parts.Parameters, added.Parameters)
		default:
			whole.Write(fields[name])
		}
		if err != nil {
			return nil, err
		}
	}
	whole.WriteString("}")
	return whole.Bytes(), nil
}

// begin writes what is before the value of a field.
func begin(whole *bytes.Buffer, place int, name string) {
	if place == 0 {
		whole.WriteString("{")
	} else {
		whole.WriteString(",")
	}
	quoted, _ := json.Marshal(name)
	whole.Write(quoted)
	whole.WriteString(":")
}

// write writes all parts in the order of their names. No name is in both.
func write[T any](whole *bytes.Buffer, parts map[string]json.RawMessage, added map[string]T) error {
	all := slices.AppendSeq(slices.Collect(maps.Keys(parts)), maps.Keys(added))
	slices.Sort(all)
	if len(all) == 0 {
		whole.WriteString("{")
	}
	for place, name := range all {
		begin(whole, place, name)
		content, known := parts[name]
		if !known {
			var err error
			if content, err = json.Marshal(added[name]); err != nil {
				return err
			}
		}
		whole.Write(content)
	}
	whole.WriteString("}")
	return nil
}

// appendProto adds the parts to the document as protobuf: messages one after the other are one with the parts of both.
func (d *Documents) appendProto(added *spec.Swagger) ([]byte, error) {
	builtIn, err := os.ReadFile(filepath.Join(d.folder, v2Proto))
	if err != nil {
		return nil, err
	}
	content, err := added.MarshalJSON()
	if err != nil {
		return nil, err
	}
	message, err := handler.ToProtoBinary(content)
	if err != nil {
		return nil, err
	}
	return append(builtIn, message...), nil
}
