package guarded

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	certificates "k8s.io/kubernetes/pkg/apis/certificates"
)

func TestThoseThatPoliciesExemptAreNotImpersonated(t *testing.T) {
	config := &genericapiserver.Config{
		BuildHandlerChainFunc: func(handler http.Handler, _ *genericapiserver.Config) http.Handler { return handler },
	}
	Install(config)
	served := config.BuildHandlerChainFunc(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), config)
	for _, each := range []struct {
		header, value string
		code          int
	}{
		{"Impersonate-Group", "system:masters", http.StatusForbidden},
		{"impersonate-group", "system:nodes", http.StatusForbidden},
		{"Impersonate-User", "system:node:n1", http.StatusForbidden},
		{"Impersonate-User", "alice", http.StatusOK},
		{"Impersonate-Group", "developers", http.StatusOK},
	} {
		request := httptest.NewRequest(http.MethodGet, "/api", nil)
		request.Header.Add("Impersonate-Group", "harmless")
		request.Header.Add(each.header, each.value)
		answer := httptest.NewRecorder()
		served.ServeHTTP(answer, request)
		if answer.Code != each.code {
			t.Errorf("%s: %s gets %d, not %d", each.header, each.value, answer.Code, each.code)
		}
	}
}

func TestOnlyKubeletsSignersSignForNodes(t *testing.T) {
	step := &plugin{Handler: admission.NewHandler(admission.Create)}
	for _, each := range []struct {
		signer, group string
		allowed       bool
	}{
		{"kubernetes.io/kube-apiserver-client", "system:nodes", false},
		{"kubernetes.io/kube-apiserver-client", "developers", true},
		{"kubernetes.io/kube-apiserver-client-kubelet", "system:nodes", true},
	} {
		asked := &certificates.CertificateSigningRequest{
			Spec: certificates.CertificateSigningRequestSpec{SignerName: each.signer, Request: request(t, each.group)},
		}
		given := admission.NewAttributesRecord(
			asked, nil, certificates.Kind("CertificateSigningRequest").WithVersion("v1"), "", "n",
			certificates.Resource("certificatesigningrequests").WithVersion("v1"), "", admission.Create, nil, false, nil)
		if err := step.Validate(context.Background(), given, nil); (err == nil) != each.allowed {
			t.Errorf("%s for %s: %v", each.signer, each.group, err)
		}
	}
}

func request(t *testing.T, group string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	subject := pkix.Name{CommonName: "system:node:n1", Organization: []string{group}}
	found, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: found})
}
