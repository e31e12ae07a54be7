// Package apiserver is kube-apiserver with a bound on how long a watch stays open.
package apiserver

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	utilversion "k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"tenantry.dev/controlplane/internal/watchbound"
)

// maxWatchSeconds is the default of --max-watch-seconds.
const maxWatchSeconds = 300

// NewCommand returns the command of kube-apiserver with one more flag. It does what
// app.NewAPIServerCommand does, which gives no access to the options and the handlers of the server.
func NewCommand() *cobra.Command {
	opts := options.NewServerRunOptions()
	ctx := genericapiserver.SetupSignalContext()
	registry := opts.GenericServerRunOptions.ComponentGlobalsRegistry
	gate := registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	var watchSeconds int64
	cmd := &cobra.Command{
		Use:          "kube-apiserver",
		Long:         "The Kubernetes API server, with a bound on how long a watch stays open.",
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			// The server's own clients must not log the warnings that it sends itself.
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			return registry.Set()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := logsapi.ValidateAndApply(opts.Logs, gate); err != nil {
				return err
			}
			cliflag.PrintFlags(cmd.Flags())
			if watchSeconds < 0 {
				return fmt.Errorf("--max-watch-seconds must not be negative: %d", watchSeconds)
			}
			completed, err := opts.Complete(ctx)
			if err != nil {
				return err
			}
			if errs := completed.Validate(); len(errs) != 0 {
				return utilerrors.NewAggregate(errs)
			}
			gate.(featuregate.MutableFeatureGate).AddMetrics()
			registry.AddMetrics()
			return run(ctx, completed, watchSeconds)
		},
	}
	cmd.SetContext(ctx)
	sets := opts.Flags()
	opts.Flagz = flagReader{sets}
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	sets.FlagSet("tenantry").Int64Var(&watchSeconds, "max-watch-seconds", maxWatchSeconds,
		"The longest time in seconds for which a watch stays open, whatever the client asks for. 0 for no bound.")
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sets, columns)
	return cmd
}

// flagReader gives the flags to /flagz. The package of Kubernetes that does so has another place in
// each version.
type flagReader struct {
	sets cliflag.NamedFlagSets
}

// GetFlagz returns the value of each flag by its name.
func (f flagReader) GetFlagz() map[string]string {
	values := map[string]string{}
	for _, set := range f.sets.FlagSets {
		set.VisitAll(func(flag *pflag.Flag) {
			values[flag.Name] = flag.Value.String()
			if len(flag.Annotations["classified"]) > 0 {
				values[flag.Name] = "CLASSIFIED"
			}
		})
	}
	return values
}

// run does what app.Run does, with a handler before those of the API.
func run(ctx context.Context, opts options.CompletedOptions, watchSeconds int64) error {
	klog.Infof("Version: %+v", utilversion.Get())
	config, err := app.NewConfig(opts)
	if err != nil {
		return err
	}
	// The aggregator's chain is the outermost one, and the only one that requests pass through.
	generic := &config.Aggregator.GenericConfig.Config
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return build(watchbound.Handler(handler, watchSeconds), c)
	}
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	server, err := app.CreateServerChain(completed)
	if err != nil {
		return err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}
