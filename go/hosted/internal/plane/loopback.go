package plane

import (
	"context"
	"net"
	"net/url"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
)

// keepOwn lets webhooks reach no other host by the configuration of this process's own clients.
//
// The API server calls webhooks with the URL https://kubernetes.default.svc:443 by this configuration: without the gate,
// with its own token, at the address that a name server has for that host. They reach this server instead. The clients of
// the servers get a copy: with a function that dials, each of them would have a connection of its own.
func keepOwn(first *genericapiserver.Config, others ...*genericapiserver.Config) error {
	held := first.LoopbackClientConfig
	server, err := url.Parse(held.Host)
	if err != nil {
		return err
	}
	copied := rest.CopyConfig(held)
	for _, config := range append(others, first) {
		config.LoopbackClientConfig = copied
	}
	held.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, server.Host)
	}
	return nil
}
