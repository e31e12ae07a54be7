// Package requestsizes refuses requests with long texts that the audit log would repeat: it has five small files, and a
// client without any credentials could otherwise push all former events out of them within seconds.
//
//	request ─► Bound ─► authentication ─► audit ─► authorization
//
// Go admits headers of 1 MiB. The contents of objects are bodies, which have limits of their own.
package requestsizes

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

const (
	// LongestURI has place for a label selector with hundreds of values, and for the command of an exec, which is a part
	// of the URI. Proxies of HTTP usually admit 8 KiB.
	LongestURI = 16 << 10
	// LongestHeader is the limit of each header that an audit event has. A User-Agent is shortened there, the others are not.
	LongestHeader = 4 << 10
	// LongestMethod exceeds the names of all registered methods. The verb of an event is the name of the method.
	LongestMethod = 32
)

// Of an event: userAgent, sourceIPs, auditID.
var headers = []string{"User-Agent", "X-Forwarded-For", auditinternal.HeaderAuditID}

// Bound has an API server refuse long requests before anything else sees them. It is the last function that changes the chain.
func Bound(config *genericapiserver.Config) {
	chain := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(handler http.Handler, config *genericapiserver.Config) http.Handler {
		return bounded(chain(handler, config))
	}
}

func bounded(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, asked *http.Request) {
		if code, message := refusal(asked); code != 0 {
			refuse(writer, code, message)
			return
		}
		handler.ServeHTTP(writer, asked)
	})
}

// refusal returns the status code for a request that is too long, and why; 0 for others.
func refusal(asked *http.Request) (int, string) {
	if len(asked.Method) > LongestMethod {
		return http.StatusNotImplemented, fmt.Sprintf("the method is longer than %d bytes", LongestMethod)
	}
	if len(asked.RequestURI) > LongestURI {
		return http.StatusRequestURITooLong, fmt.Sprintf(
			"the URI has %d bytes and may have %d: use shorter selectors, or send a long command by standard input",
			len(asked.RequestURI), LongestURI)
	}
	for _, name := range headers {
		if size := len(asked.Header.Get(name)); size > LongestHeader {
			return http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf(
				"the header %s has %d bytes and may have %d", name, size, LongestHeader)
		}
	}
	return 0, ""
}

func refuse(writer http.ResponseWriter, code int, message string) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Message: message,
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(code)
	// A client that has left gets none.
	_ = json.NewEncoder(writer).Encode(status)
}
