package tenantry

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	cluster "github.com/coredns/coredns/plugin/kubernetes"
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var log = clog.NewWithPlugin(Name)

// defaultGrace is below the five seconds after which resolvers ask again.
const defaultGrace = 2 * time.Second

func init() { plugin.Register(Name, setup) }

// settings is what a Corefile says.
type settings struct {
	zones      []string
	kubeconfig string
	context    string
	trusted    []netip.Prefix
	grace      time.Duration
}

// CheckOrder returns an error where plugins are in an order in which names of one tenant would get to another: the cache
// keeps what one was answered, and what changes a question on its way has to have done so when we see it.
func CheckOrder(directives []string) error {
	place := slices.Index(directives, Name)
	for _, later := range []string{"cache", "transfer", "kubernetes"} {
		if at := slices.Index(directives, later); at >= 0 && at < place {
			return fmt.Errorf("plugin.cfg must name tenantry before %s", later)
		}
	}
	for _, earlier := range []string{"rewrite", "autopath", "dns64"} {
		if slices.Index(directives, earlier) > place {
			return fmt.Errorf("plugin.cfg must name tenantry after %s", earlier)
		}
	}
	return nil
}

func setup(c *caddy.Controller) error {
	if err := CheckOrder(dnsserver.Directives); err != nil {
		return plugin.Error(Name, err)
	}
	said, err := read(c)
	if err != nil {
		return plugin.Error(Name, err)
	}
	config, err := said.client()
	if err != nil {
		return plugin.Error(Name, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return plugin.Error(Name, err)
	}
	t := &Tenantry{zones: said.zones, trusted: said.trusted, grace: said.grace, directory: newDirectory()}
	start, synced, err := watch(client, t.directory)
	if err != nil {
		return plugin.Error(Name, err)
	}
	t.synced = synced
	stop := make(chan struct{})
	c.OnStartup(func() error {
		if err := t.join(dnsserver.GetConfig(c).Handler("kubernetes")); err != nil {
			return plugin.Error(Name, err)
		}
		start(stop)
		if !startup(synced) {
			log.Warning("starting before all of the cluster is known; until then names of the cluster get SERVFAIL")
		}
		return nil
	})
	c.OnShutdown(sync.OnceValue(func() error {
		close(stop)
		return nil
	}))
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		t.Next = next
		return t
	})
	return nil
}

// join checks that no zone of the plugin kubernetes of the same server is left open.
func (t *Tenantry) join(handler plugin.Handler) error {
	served, ok := handler.(*cluster.Kubernetes)
	if !ok {
		return nil
	}
	for _, zone := range served.Zones {
		if t.zones.Matches(zone) == "" {
			return fmt.Errorf("the plugin kubernetes serves the zone %q, which tenantry is not told of: "+
				"name the same zones behind both", zone)
		}
		if t.zones.Matches(zone) != zone {
			t.zones = append(t.zones, zone)
		}
	}
	t.cluster = served
	return nil
}

func read(c *caddy.Controller) (settings, error) {
	said := settings{grace: defaultGrace}
	for first := true; c.Next(); first = false {
		if !first {
			return said, plugin.ErrOnce
		}
		said.zones = plugin.OriginsFromArgsOrServerBlock(c.RemainingArgs(), c.ServerBlockKeys)
		for c.NextBlock() {
			if err := said.property(c); err != nil {
				return said, err
			}
		}
	}
	return said, nil
}

func (s *settings) property(c *caddy.Controller) error {
	property, args := c.Val(), c.RemainingArgs()
	switch {
	case property == "kubeconfig" && (len(args) == 1 || len(args) == 2):
		s.kubeconfig = args[0]
		if len(args) == 2 {
			s.context = args[1]
		}
	case property == "trust" && len(args) > 0:
		for _, arg := range args {
			prefix, err := netip.ParsePrefix(arg)
			if err != nil {
				return c.Errf("trust must name networks as 192.0.2.0/24: %v", err)
			}
			s.trusted = append(s.trusted, prefix.Masked())
		}
	case property == "wait" && len(args) == 1:
		grace, err := time.ParseDuration(args[0])
		if err != nil || grace < 0 || grace > 10*time.Second {
			return c.Errf("wait must be a duration from 0s to 10s, not %q", args[0])
		}
		s.grace = grace
	case property == "kubeconfig" || property == "trust" || property == "wait":
		return c.ArgErr()
	default:
		return c.Errf("unknown property %q: must be kubeconfig, trust or wait", property)
	}
	return nil
}

func (s *settings) client() (*rest.Config, error) {
	var config *rest.Config
	var err error
	if s.kubeconfig == "" {
		config, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("not in a pod of a cluster: name a kubeconfig")
		}
	} else {
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: s.kubeconfig},
			&clientcmd.ConfigOverrides{CurrentContext: s.context},
		).ClientConfig()
	}
	if err != nil {
		return nil, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.UserAgent = "coredns-tenantry"
	return config, nil
}
