// Package etcd connects to an etcd through a Unix socket, and administers one that several control planes share.
package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
	// gRPC waits up to two minutes by default, so that a control plane would be away longer than its etcd.
	longestBackoff = time.Second
)

// Access is how to reach an etcd, and as whom: the common name of the certificate is the user.
type Access struct {
	Socket      string `json:"socket"`
	ServerName  string `json:"serverName"`
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// Connect returns a client, which connects in the background.
func Connect(ctx context.Context, access Access) (*clientv3.Client, error) {
	authority, err := os.ReadFile(access.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s has no certificate", access.CA)
	}
	if _, err := tls.LoadX509KeyPair(access.Certificate, access.Key); err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", access.Socket)
	}
	return clientv3.New(clientv3.Config{
		Context: ctx,
		// Only the dialer decides where the connection leads to.
		Endpoints:            []string{"https://" + access.ServerName},
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(dial),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestBackoff},
				MinConnectTimeout: keepaliveTimeout,
			}),
		},
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS12,
			RootCAs:    roots,
			ServerName: access.ServerName,
			// Read at each connection: certificates are renewed.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				found, err := tls.LoadX509KeyPair(access.Certificate, access.Key)
				return &found, err
			},
		},
		Logger: zap.NewNop(),
	})
}
