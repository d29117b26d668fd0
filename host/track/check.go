// SPDX-License-Identifier: Apache-2.0

package track

import (
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A HealthCheck is what a Service's healthCheckNodePort is to answer: load
// balancers ask there whether this node has an endpoint for them.
type HealthCheck struct {
	Key
	Port  uint16
	Ready reach.Counts // addresses on this node that are ready
	Ports reach.Counts // of the Service; a family with none is not asked
}

// HealthChecks returns those of all Services that own theirs, in order of name. Until
// everything is known there are none, so that a load balancer does not take the
// missing for gone.
func (t *Tracker) HealthChecks() []HealthCheck {
	t.mu.Lock()
	defer t.unlock()
	if !t.synced {
		return nil
	}
	list := make([]HealthCheck, 0, len(t.checks))
	for _, c := range t.checks {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b HealthCheck) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return list
}

// HealthChecked holds a token when HealthChecks may say something else than
// before. It is for one listener.
func (t *Tracker) HealthChecked() <-chan struct{} { return t.checked }

// check keeps svc's health check as it is now.
func (t *Tracker) check(svc *service) {
	var now HealthCheck
	if len(svc.ports) > 0 {
		if port := t.owners.healthPort(svc); port != 0 {
			now = HealthCheck{Key: svc.key, Port: port, Ready: svc.ready}
			for _, p := range svc.ports {
				now.Ports.Add(p.name.Family)
			}
		}
	}
	switch {
	case now == t.checks[svc.key]:
		return
	case now.Port == 0:
		delete(t.checks, svc.key)
	default:
		t.checks[svc.key] = now
	}
	t.signalChecked()
}

func (t *Tracker) signalChecked() {
	select {
	case t.checked <- struct{}{}:
	default:
	}
}

// A Lack is a kind of traffic that has no endpoint on this node, though one
// elsewhere could answer it.
type Lack struct {
	Internal bool // to the ClusterIP; else from outside
	Family   sdk.Family
}

// Lacks counts the Services that the Local policy leaves without an endpoint
// here, each once for each kind of traffic.
func (t *Tracker) Lacks() map[Lack]int {
	t.mu.Lock()
	defer t.unlock()
	counts := make(map[Lack]int)
	for _, svc := range t.services {
		for l := range t.lacks(svc) {
			counts[l]++
		}
	}
	return counts
}

func (t *Tracker) lacks(svc *service) map[Lack]bool {
	var found map[Lack]bool
	for i := range svc.ports {
		value := t.values[svc.ports[i].name]
		if value == nil || len(value.Local) > 0 || len(value.Cluster) == 0 {
			continue
		}
		for _, f := range value.Frontends {
			if f.Policy == sdk.Local {
				if found == nil {
					found = make(map[Lack]bool)
				}
				found[Lack{Internal: !f.External(), Family: value.Name.Family}] = true
			}
		}
	}
	return found
}
