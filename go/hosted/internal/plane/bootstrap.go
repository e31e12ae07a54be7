package plane

import (
	"context"
	"net"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"tenantry.dev/hosted/internal/settings"
)

// quietTime is how long a control plane writes nothing when it has written all that it writes by itself.
const quietTime = 3 * time.Second

// Bootstrap runs a control plane with an empty datastore until it has written what it writes by itself, and returns when
// it has ended. The controllers find the API server by a file, which is written.
//
// Args: client reads the datastore.
func Bootstrap(
	ctx context.Context, given settings.Settings, listener net.Listener, client *clientv3.Client, kubeconfig string,
) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	manager, err := managerOptions(given.Controllers)
	if err != nil {
		return err
	}
	chain, err := assemble(ctx, given, func(server *apiserveroptions.ServerRunOptions) {
		server.SecureServing.Listener = listener
	}, nil)
	if err != nil {
		return err
	}
	if err := writeKubeconfig(chain.GenericAPIServer.LoopbackClientConfig, kubeconfig); err != nil {
		return err
	}
	if err := control(chain.GenericAPIServer, manager, fail); err != nil {
		return err
	}
	changes := client.Watch(ctx, given.Datastore.Prefix()+"/", clientv3.WithPrefix())
	var settled error
	settling := func(hook genericapiserver.PostStartHookContext) error {
		go func() {
			settled = settle(hook, hook.LoopbackClientConfig, changes)
			fail(nil)
		}()
		return nil
	}
	if err := chain.GenericAPIServer.AddPostStartHook("start-hosted-settling", settling); err != nil {
		return err
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return err
	}
	if err := prepared.Run(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && cause != context.Canceled {
		return cause
	}
	return settled
}

// settle waits until the server is ready, and nothing is written any more.
func settle(ctx context.Context, server *rest.Config, changes clientv3.WatchChan) error {
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(ctx, healthyInterval, true, func(ctx context.Context) (bool, error) {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	})
	if err != nil {
		return err
	}
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case answer := <-changes:
			if err := answer.Err(); err != nil {
				return err
			}
			if len(answer.Events) != 0 {
				quiet.Reset(quietTime)
			}
		case <-quiet.C:
			return nil
		}
	}
}

func writeKubeconfig(server *rest.Config, file string) error {
	const name = "loopback"
	made := clientcmdapi.NewConfig()
	made.Clusters[name] = &clientcmdapi.Cluster{
		Server: server.Host, TLSServerName: server.ServerName, CertificateAuthorityData: server.CAData}
	made.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: server.BearerToken}
	made.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	made.CurrentContext = name
	return clientcmd.WriteToFile(*made, file)
}
