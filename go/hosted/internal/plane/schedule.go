package plane

import (
	"context"
	"fmt"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// schedule runs the scheduler from the time the server listens. If it ends by itself, fail gets the cause.
func schedule(
	server *genericapiserver.GenericAPIServer, arguments []string, fail context.CancelCauseFunc,
) error {
	options := scheduleroptions.NewOptions()
	if err := parse("kube-scheduler", *options.Flags, arguments); err != nil {
		return err
	}
	return server.AddPostStartHook("start-hosted-scheduler", func(hook genericapiserver.PostStartHookContext) error {
		go func() {
			err := runScheduler(hook, hook.LoopbackClientConfig, options)
			// It reports its end as an error, also when it was asked to end.
			if hook.Err() == nil {
				fail(fmt.Errorf("scheduler: %w", err))
			}
		}()
		return nil
	})
}

func runScheduler(ctx context.Context, server *rest.Config, options *scheduleroptions.Options) error {
	if err := awaitHealthy(ctx, server); err != nil {
		return err
	}
	config, found, err := scheduler.Setup(ctx, options)
	if err != nil {
		return err
	}
	return scheduler.Run(ctx, config, found)
}
