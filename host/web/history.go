// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The charts show the last hour, with one sample per period.
const (
	period  = 15 * time.Second
	samples = int(time.Hour/period) + 1
)

// A history is the metrics of the last hour.
type history struct {
	metrics prometheus.Gatherer

	mu  sync.Mutex // guards the field below
	all []sample   // oldest first
}

// A sample holds the metrics at one moment. All but endpoints are counters.
type sample struct{ updates, seconds, endpoints, failures float64 }

// Run samples the metrics until ctx ends.
func (s *Site) Run(ctx context.Context) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		s.history.sample()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// sample adds the current metrics. Metrics that cannot be gathered are missing, as in a scrape.
func (h *history) sample() {
	families, _ := h.metrics.Gather()
	var now sample
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "kubeproxy_sync_proxy_rules_duration_seconds":
				now.updates += float64(m.GetHistogram().GetSampleCount())
				now.seconds += m.GetHistogram().GetSampleSum()
			case "pointsman_endpoints":
				now.endpoints = m.GetGauge().GetValue()
			case "pointsman_sync_failures_total", "pointsman_plugin_restarts_total":
				now.failures += m.GetCounter().GetValue()
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, now)
	h.all = h.all[max(0, len(h.all)-samples):]
}

// A chart is a line over the last hour, in a box of 240 × 60.
type chart struct{ Title, Path, Says string }

// charts draws the history.
func (h *history) charts() []chart {
	h.mu.Lock()
	defer h.mu.Unlock()
	return []chart{
		h.plot("Sync latency", "%.1f ms", func(was, now sample) (float64, bool) {
			return 1000 * (now.seconds - was.seconds) / (now.updates - was.updates), now.updates > was.updates
		}),
		h.plot("Endpoints", "%.0f", func(_, now sample) (float64, bool) { return now.endpoints, true }),
		h.plot("Failures", "%.0f", func(was, now sample) (float64, bool) {
			return max(0, now.failures-was.failures), true // the count of a plugin that is gone disappears
		}),
	}
}

// plot draws one value per period. Periods without a value are gaps. The caller holds mu.
func (h *history) plot(title, format string, value func(was, now sample) (float64, bool)) chart {
	values, top, last := make(map[int]float64), 0.0, 0.0
	for i := 1; i < len(h.all); i++ {
		if v, ok := value(h.all[i-1], h.all[i]); ok {
			values[samples-len(h.all)+i], top, last = v, max(top, v), v
		}
	}
	if len(values) == 0 {
		return chart{title, "", "nothing yet"}
	}
	var path strings.Builder
	for i := range samples {
		v, ok := values[i]
		verb := 'M'
		if _, joined := values[i-1]; joined {
			verb = 'L'
		}
		if ok {
			fmt.Fprintf(&path, "%c%d %.1fh1", verb, i-1, 58-56*v/max(top, 1e-9)) // h1 shows a value between gaps
		}
	}
	return chart{title, path.String(), fmt.Sprintf(format+" last, at most "+format, last, top)}
}
