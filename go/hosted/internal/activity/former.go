package activity

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"sort"
	"sync"
	"time"
)

// Of which the answer reports the latest; users inside can have certificates of any number of names issued.
const mostFormer = 100

// A formerClient is a user with a certificate of an authority that is being replaced.
type formerClient struct {
	User string `json:"user"`
	// Last is when its last request ended, as RFC 3339; the time of the answer while one is open.
	Last string `json:"last"`
}

type formerUse struct {
	open int
	last time.Time
}

// formerClients knows which users have certificates of some authorities, by the key of the authority that a certificate
// names: the names of an authority and of the one that replaces it are the same.
type formerClients struct {
	authorities map[string]*x509.Certificate

	mutex sync.Mutex
	uses  map[string]*formerUse
}

// newFormerClients returns what reports the clients of the authorities in a file; nil without one.
func newFormerClients(path string) (*formerClients, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := &formerClients{authorities: map[string]*x509.Certificate{}, uses: map[string]*formerUse{}}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return found, nil
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found.authorities[string(certificate.SubjectKeyId)] = certificate
	}
}

func done() {}

// begin notes a request, and returns what notes its end.
func (f *formerClients) begin(asked *http.Request) func() {
	if f == nil || asked.TLS == nil || len(asked.TLS.PeerCertificates) == 0 {
		return done
	}
	certificate := asked.TLS.PeerCertificates[0]
	authority := f.authorities[string(certificate.AuthorityKeyId)]
	// A client with a token may present any certificate, and one with a certificate may act as another user.
	if authority == nil || certificate.CheckSignatureFrom(authority) != nil {
		return done
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	name := certificate.Subject.CommonName
	use := f.uses[name]
	if use == nil {
		f.forget()
		use = &formerUse{}
		f.uses[name] = use
	}
	use.open++
	return func() {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		use.open--
		use.last = time.Now()
	}
}

// forget makes room for one user more.
func (f *formerClients) forget() {
	if len(f.uses) < mostFormer {
		return
	}
	oldest := ""
	for name, use := range f.uses {
		if use.open == 0 && (oldest == "" || use.last.Before(f.uses[oldest].last)) {
			oldest = name
		}
	}
	delete(f.uses, oldest)
}

// list returns the users, sorted by name.
func (f *formerClients) list() []formerClient {
	if f == nil {
		return nil
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var found []formerClient
	for name, use := range f.uses {
		last := use.last
		if use.open > 0 {
			last = time.Now()
		}
		found = append(found, formerClient{User: name, Last: last.UTC().Format(time.RFC3339)})
	}
	sort.Slice(found, func(one, other int) bool { return found[one].User < found[other].User })
	return found[:min(len(found), mostFormer)]
}
