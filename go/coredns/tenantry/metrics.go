package tenantry

import (
	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var hidden = promauto.NewCounterVec(prometheus.CounterOpts{
	Namespace: plugin.Namespace,
	Subsystem: Name,
	Name:      "hidden_total",
	Help:      "Questions that were answered as if there were no such name, because the client may not know of it.",
}, []string{"server"})
