// Package plane runs an API server and controllers in one process. It does what the commands of
// Kubernetes do, which expect a process each.
package plane

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	_ "hosted.tenantry.dev/queues"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	utilversion "k8s.io/component-base/version"
	"k8s.io/klog/v2"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controlleroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"tenantry.dev/hosted/internal/activity"
	"tenantry.dev/hosted/internal/admission"
	"tenantry.dev/hosted/internal/forwarded"
	"tenantry.dev/hosted/internal/guarded"
	"tenantry.dev/hosted/internal/openapi"
	"tenantry.dev/hosted/internal/requestsizes"
	"tenantry.dev/hosted/internal/settings"
)

const healthyInterval = 100 * time.Millisecond

// Run runs the control plane until ctx ends. If the controllers end by themselves, fail gets the cause.
func Run(ctx context.Context, given settings.Settings, fail context.CancelCauseFunc) error {
	manager, err := managerOptions(given.Controllers)
	if err != nil {
		return err
	}
	var tracker *activity.Tracker
	if given.Activity != nil {
		tracker = activity.New(given.Activity.IgnoredUsers)
		if err := tracker.Report(given.Activity.FormerAuthorities); err != nil {
			return err
		}
	}
	chain, err := assemble(ctx, given, func(*apiserveroptions.ServerRunOptions) {}, tracker)
	if err != nil {
		return err
	}
	if err := forwarded.Install(chain, given.Forwarded); err != nil {
		return err
	}
	if tracker != nil {
		if err := report(ctx, chain.GenericAPIServer, given.Activity.Socket, tracker, fail); err != nil {
			return err
		}
	}
	if manager != nil {
		if err := control(chain.GenericAPIServer, manager, fail); err != nil {
			return err
		}
	}
	if len(given.Scheduler) > 0 {
		if err := schedule(chain.GenericAPIServer, given.Scheduler, fail); err != nil {
			return err
		}
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}

// control runs controllers from the time the server listens. If they end by themselves, fail gets the cause.
func control(
	server *genericapiserver.GenericAPIServer, manager *controlleroptions.KubeControllerManagerOptions,
	fail context.CancelCauseFunc,
) error {
	policies := takePolicies(manager)
	start := func(hook genericapiserver.PostStartHookContext) error {
		if policies {
			go runPolicies(hook, hook.LoopbackClientConfig, fail)
		}
		go func() {
			if err := manage(hook, hook.LoopbackClientConfig, manager); err != nil {
				fail(fmt.Errorf("controllers: %w", err))
			}
		}()
		return nil
	}
	return server.AddPostStartHook("start-hosted-controllers", start)
}

// WriteOpenAPI writes the documents of the built-in kinds, for the settings of later control planes.
func WriteOpenAPI(ctx context.Context, given settings.Settings, listener net.Listener, folder string) error {
	chain, err := assemble(ctx, given, func(server *apiserveroptions.ServerRunOptions) {
		server.SecureServing.Listener = listener
	}, nil)
	if err != nil {
		return err
	}
	defer chain.GenericAPIServer.Destroy()
	if _, err := chain.PrepareRun(); err != nil {
		return err
	}
	return openapi.Write(folder, chain.GenericAPIServer.NextDelegate().UnprotectedHandler())
}

// assemble returns the servers of an API server, each of which gives the requests that it does not know to the next:
// aggregator, built-in kinds, custom resources.
func assemble(
	ctx context.Context, given settings.Settings, adjust func(*apiserveroptions.ServerRunOptions),
	tracker *activity.Tracker,
) (*aggregatorapiserver.APIAggregator, error) {
	// Both parts apply the options of the log, which are the process's.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	// Clients in this process must not log the warnings that its own server sends.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	klog.Infof("Version: %+v", utilversion.Get())

	server := apiserveroptions.NewServerRunOptions()
	adjust(server)
	arguments := append([]string{
		// Never used: the clients of etcd are those of the datastore in this process, which compacts itself.
		"--etcd-servers=unix://store", "--etcd-compaction-interval=0", "--etcd-prefix=" + given.Datastore.Prefix(),
		// Otherwise, the objects of each kind are counted once a minute.
		"--etcd-count-metric-poll-period=0",
	}, given.APIServer...)
	if err := parse("kube-apiserver", server.Flags(), arguments); err != nil {
		return nil, err
	}
	if given.Admission != nil {
		if err := admission.Install(server.Admission.GenericAdmission, *given.Admission); err != nil {
			return nil, err
		}
	}
	if given.Guarded {
		if err := guarded.Restrict(server.Admission.GenericAdmission); err != nil {
			return nil, err
		}
	}
	registry := server.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := registry.Set(); err != nil {
		return nil, err
	}
	gate := registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(server.Logs, gate); err != nil {
		return nil, err
	}
	completed, err := server.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	gate.(featuregate.MutableFeatureGate).AddMetrics()
	registry.AddMetrics()
	config, err := apiserver.NewConfig(completed)
	if err != nil {
		return nil, err
	}
	if given.Admission != nil {
		// All requests arrive at the aggregator, and the other servers get those that it has authenticated.
		admission.ExemptOwn(&config.Aggregator.GenericConfig.Config)
	}
	if given.Guarded {
		guarded.Install(&config.Aggregator.GenericConfig.Config)
	}
	if tracker != nil {
		tracker.Install(&config.Aggregator.GenericConfig.Config)
	}
	awaitEgress(config)
	shared := config.KubeAPIs.ControlPlane.Generic
	others := []*genericapiserver.Config{&config.Aggregator.GenericConfig.Config, &config.ApiExtensions.GenericConfig.Config}
	if err := keepOwn(shared, others...); err != nil {
		return nil, err
	}
	nameOperations(shared)
	restLonger(config.KubeAPIs)
	replaceDefaults(shared)
	// The other servers have copies of this configuration, and make their own documents.
	shared.SkipOpenAPIInstallation = given.OpenAPI != ""
	var documents *openapi.Documents
	if given.OpenAPI != "" {
		if documents, err = openapi.Open(given.OpenAPI); err != nil {
			return nil, err
		}
		documents.Join(&config.Aggregator.GenericConfig.Config)
	}
	requestsizes.Bound(&config.Aggregator.GenericConfig.Config)
	whole, err := config.Complete()
	if err != nil {
		return nil, err
	}
	chain, err := apiserver.CreateServerChain(whole)
	if err != nil {
		return nil, err
	}
	if err := addDefaults(chain.GenericAPIServer); err != nil || documents == nil {
		return chain, err
	}
	builtIn, ok := chain.GenericAPIServer.NextDelegate().(*genericapiserver.GenericAPIServer)
	if !ok {
		return nil, fmt.Errorf("the server behind the aggregator is a %T", chain.GenericAPIServer.NextDelegate())
	}
	documents.Install(builtIn.Handler.NonGoRestfulMux)
	return chain, chain.GenericAPIServer.AddPostStartHook("start-hosted-reclaim", reclaimer(shared))
}

func managerOptions(arguments []string) (*controlleroptions.KubeControllerManagerOptions, error) {
	if len(arguments) == 0 {
		return nil, nil
	}
	manager, err := controlleroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	sets := manager.Flags(
		controllers.KnownControllers(), controllers.ControllersDisabledByDefault(), controllers.ControllerAliases())
	manager.ParsedFlags = &sets
	return manager, parse("kube-controller-manager", sets, arguments)
}

// report answers on a socket when clients were active last, from the time the server listens.
func report(
	ctx context.Context, server *genericapiserver.GenericAPIServer, socket string, tracker *activity.Tracker,
	fail context.CancelCauseFunc,
) error {
	listener, err := activity.Listen(socket)
	if err != nil {
		return err
	}
	return server.AddPostStartHook("start-hosted-activity", func(hook genericapiserver.PostStartHookContext) error {
		client, err := kubernetes.NewForConfig(hook.LoopbackClientConfig)
		if err != nil {
			return err
		}
		events := func(ctx context.Context, now time.Time) (time.Time, error) {
			return activity.NextEvent(ctx, client, now)
		}
		go func() {
			if err := tracker.Serve(ctx, listener, events); err != nil {
				fail(err)
			}
		}()
		return nil
	})
}

// manage runs the controllers from the time the server is healthy. They wait themselves, and give up after ten seconds,
// which is too early for the first start on a busy machine.
func manage(
	ctx context.Context, server *rest.Config, manager *controlleroptions.KubeControllerManagerOptions,
) error {
	if err := awaitHealthy(ctx, server); err != nil {
		return err
	}
	config, err := manager.Config(
		ctx, controllers.KnownControllers(), controllers.ControllersDisabledByDefault(), controllers.ControllerAliases())
	if err != nil {
		return err
	}
	return controllers.Run(ctx, config.Complete())
}

// awaitHealthy returns when the server is healthy.
func awaitHealthy(ctx context.Context, server *rest.Config) error {
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, healthyInterval, true, func(ctx context.Context) (bool, error) {
		return client.Discovery().RESTClient().Get().AbsPath("/healthz").Do(ctx).Error() == nil, nil
	})
}

func parse(name string, sets cliflag.NamedFlagSets, arguments []string) error {
	all := pflag.NewFlagSet(name, pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	if err := all.Parse(arguments); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if all.NArg() != 0 {
		return fmt.Errorf("%s takes no arguments: %q", name, all.Args())
	}
	return nil
}
