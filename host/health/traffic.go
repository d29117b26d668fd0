// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Busy is the traffic of one port of a Service, in a second.
type Busy struct {
	Service     string // as events name the port: "shop/web:http/tcp4"
	Connections float64
	Bytes       bool    // In and Out are counted
	In, Out     float64 // bytes, from callers and to them
}

// mostBusy is of how many ports the traffic is published: each is a series or three on every node. The
// others are summed up.
const mostBusy = 20

// otherPorts is what stands for them. No port is called so: each has a slash.
const otherPorts = "other"

// traffic answers /metrics/traffic. It is apart from /metrics, since the dataplane is asked for it at each
// scrape: only a scrape of this path costs that.
func (s *Server) traffic(w http.ResponseWriter, r *http.Request) {
	all, err := s.settings.Traffic(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	promhttp.HandlerFor(trafficOf(all), promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// trafficOf publishes the busiest of all.
func trafficOf(all []Busy) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(busiest(busiestOf(all)))
	return registry
}

// busiestOf returns those with the most connections, and the sum of the others behind them.
func busiestOf(all []Busy) []Busy {
	all = slices.SortedFunc(slices.Values(all), func(a, b Busy) int {
		return cmp.Or(cmp.Compare(b.Connections, a.Connections), cmp.Compare(b.In+b.Out, a.In+a.Out), cmp.Compare(a.Service, b.Service))
	})
	if len(all) <= mostBusy {
		return all
	}
	other := Busy{Service: otherPorts}
	for _, b := range all[mostBusy:] {
		other.Connections += b.Connections
		other.Bytes = other.Bytes || b.Bytes
		other.In += b.In
		other.Out += b.Out
	}
	return append(all[:mostBusy:mostBusy], other)
}

// busiest is a collector of these.
type busiest []Busy

func (busiest) Describe(chan<- *prometheus.Desc) {}

func (all busiest) Collect(to chan<- prometheus.Metric) {
	e := emitter(to)
	for _, b := range all {
		e.gauge("pointsman_service_connections_per_second", "New connections, of UDP flows, that a port of a Service had in a second since the scrape before; of the twenty with the most, and of all others together.", b.Connections, labels{"service": b.Service})
		if !b.Bytes {
			continue
		}
		for direction, n := range map[string]float64{"in": b.In, "out": b.Out} {
			e.gauge("pointsman_service_bytes_per_second", "Bytes that these ports had in a second, where the dataplane counts them: in from the callers, out to them.", n, labels{"service": b.Service, "direction": direction})
		}
	}
}
