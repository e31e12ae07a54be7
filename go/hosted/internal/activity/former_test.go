package activity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// An issuer is an authority whose certificate is in a file.
type issuer struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// newIssuer writes an authority, of the one name that all have, into a file.
func newIssuer(t *testing.T, path string) issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "users-ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return issuer{key, found}
}

// signed returns a request of a user whose certificate names an authority, and is signed by the same or by another one.
func signed(t *testing.T, name string, names, by issuer) *http.Request {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, names.certificate, by.key.Public(), by.key)
	if names.certificate == by.certificate && err != nil {
		t.Fatal(err)
	}
	found := asked(name, "kubectl")
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		certificate = &x509.Certificate{
			Subject: template.Subject, AuthorityKeyId: names.certificate.SubjectKeyId,
			SignatureAlgorithm: x509.ECDSAWithSHA256, Signature: []byte("forged"),
		}
	}
	found.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
	return found
}

func TestClientsOfFormerAuthoritiesAreListed(t *testing.T) {
	folder := t.TempDir()
	former, present := newIssuer(t, filepath.Join(folder, "former")), newIssuer(t, filepath.Join(folder, "present"))
	tracker := New(nil)
	if err := tracker.Report(filepath.Join(folder, "former")); err != nil {
		t.Fatal(err)
	}
	handler := tracker.counted(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, each := range []*http.Request{
		signed(t, "system:node:n-1", former, former), signed(t, "owner", present, present), asked("pod", "front"),
		signed(t, "forged", former, present),
	} {
		handler.ServeHTTP(httptest.NewRecorder(), each)
	}
	found := tracker.former.list()
	if len(found) != 1 || found[0].User != "system:node:n-1" {
		t.Errorf("listed: %v", found)
	}
	if err := New(nil).Report(filepath.Join(folder, "absent")); err == nil {
		t.Error("a file that is not there is no error")
	}
}

func TestOfManyClientsTheLatestAreListed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "former")
	former := newIssuer(t, path)
	tracker := New(nil)
	if err := tracker.Report(path); err != nil {
		t.Fatal(err)
	}
	for number := range mostFormer + 5 {
		tracker.former.begin(signed(t, strconv.Itoa(number), former, former))()
	}
	if found := tracker.former.list(); len(found) != mostFormer {
		t.Errorf("%d are listed", len(found))
	}
}
