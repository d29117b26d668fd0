// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/host/track"
)

// gauges returns those of allowed whose names end as a counter's do.
func gauges() []string { return []string{"kubeproxy_sync_proxy_rules_iptables_total"} }

// samples publishes what the dataplane that serves counts.
type samples struct {
	report func(track.Notice)

	mu      sync.Mutex // guards what follows
	last    string     // refusal
	refused int        // so far
}

// emit publishes p's samples, but for those that are refused.
func (s *samples) emit(e emitter, p Dataplane) {
	j := newFilter(p.Name)
	help := "As the " + p.Name + " dataplane counts it."
	for _, h := range p.Report.Histograms {
		if j.histogram(h) {
			e.histogram(h, help)
		}
	}
	for _, m := range p.Report.Samples {
		if j.sample(m) {
			e.emit(m.Name, help, kindOf(m.Name), m.Value, pairs(m.Labels))
		}
	}
	s.say(p.Name, j.refused)
}

func pairs(labels map[string]string) []pair {
	list := make([]pair, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, pair{name, labels[name]})
	}
	return list
}

// say counts refusals, and reports them when they are others than before.
func (s *samples) say(plugin string, bad []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused += len(bad)
	text := strings.Join(bad[:min(len(bad), 3)], "; ")
	if text != "" && text != s.last {
		s.report(track.Notice{Warning: true, Reason: SampleRefused, Object: plugin, Message: fmt.Sprintf("%d of its metrics are not published: %s", len(bad), text)})
	}
	s.last = text
}

// count returns how many were refused so far.
func (s *samples) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

func kindOf(name string) prometheus.ValueType {
	if strings.HasSuffix(name, "_total") && !slices.Contains(gauges(), name) {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}
