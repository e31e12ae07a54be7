// Command registry is an image registry in memory behind a user name and a password, for tests.
//
//	registry ADDRESS USER PASSWORD
package main

import (
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/registry"
)

// guarded returns a handler that passes requests with these credentials only.
func guarded(next http.Handler, user, password string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, secret, ok := r.BasicAuth()
		same := subtle.ConstantTimeCompare([]byte(name+":"+secret), []byte(user+":"+password)) == 1
		if !ok || !same {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"credentials are needed"}]}`, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: registry ADDRESS USER PASSWORD")
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
	// The caller waits for this line.
	fmt.Println("serving", listener.Addr())
	fmt.Fprintln(os.Stderr, "registry:", http.Serve(listener, guarded(registry.New(), os.Args[2], os.Args[3])))
	os.Exit(1)
}
