// SPDX-License-Identifier: Apache-2.0

package track

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A service is a Kubernetes Service as tracked, with the slices that name it.
type service struct {
	key    Key
	spec   *reach.Service // nil: not known, or none of ours
	slices []*slice       // in order of name
	ports  []port         // what spec comes to here
	held   []claim        // what it asks for, whether it owns that or not
	addrs  []netip.Addr   // of those, where it matters which others have the address

	problems []reach.Problem // with its spec
	warnings []reach.Problem // what of its spec is served, and may not be meant so
	taken    []reach.Problem // with what others own
	notes    []string        // what of its spec is left out on purpose
	ready    reach.Counts    // addresses on this node that are ready

	troubled time.Time // since when there are problems; zero: there are none
}

// A port is one port of a Service in one family: what a dataplane calls a Service.
type port struct {
	reach.PortFrontends
	name  sdk.Name
	owned []sdk.Frontend // of Frontends, those that belong to it

	ready, total int       // endpoints, on any node
	empty        time.Time // since when none may be used; zero: one may
}

// renew decides svc's frontends anew, and settles svc and the Services that won or lost an
// address by that.
func (t *Tracker) renew(svc *service) {
	before := svc.ports
	touched := t.owners.release(svc)
	t.enter(svc)
	touched = append(touched, t.owners.claim(svc)...)
	touched = append(touched, t.rescreen(before, svc.ports)...)
	for _, p := range before {
		if !slices.ContainsFunc(svc.ports, func(q port) bool { return q.name == p.name }) {
			t.put(p.name, nil)
		}
	}
	t.fit(svc)
	for _, other := range distinct(touched, svc) {
		t.fit(other)
	}
}

// enter makes the ports of svc from its spec.
func (t *Tracker) enter(svc *service) {
	before := svc.ports
	svc.ports = nil
	var problems, warnings []reach.Problem
	if svc.spec != nil {
		var all []reach.PortFrontends
		all, problems, warnings, svc.notes = reach.Frontends(svc.spec, t.here)
		for _, pf := range all {
			p := port{PortFrontends: pf, name: svc.name(pf)}
			if i := slices.IndexFunc(before, func(q port) bool { return q.name == p.name }); i >= 0 {
				p.empty = before[i].empty
			}
			svc.ports = append(svc.ports, p)
		}
	}
	t.warnNew(svc.key.String(), svc.problems, problems)
	t.warnNew(svc.key.String(), svc.warnings, warnings)
	svc.problems, svc.warnings = problems, warnings
}

func (s *service) name(pf reach.PortFrontends) sdk.Name {
	return sdk.Name{
		Namespace: s.key.Namespace,
		Service:   s.key.Name,
		Port:      pf.Port.Name,
		Protocol:  pf.Port.Protocol,
		Family:    pf.Family,
	}
}

// fit gives svc the frontends that it owns, says which it does not, and settles
// it.
func (t *Tracker) fit(svc *service) {
	var problems []reach.Problem
	for i := range svc.ports {
		p := &svc.ports[i]
		p.owned = p.Frontends
		lost := t.owners.lost(svc, i)
		if len(lost) == 0 {
			continue
		}
		problems = append(problems, lost...)
		p.owned = slices.DeleteFunc(slices.Clone(p.Frontends), func(f sdk.Frontend) bool {
			owner, port := t.owners.owner(svc, i, f)
			return owner != svc || port != i
		})
	}
	if len(svc.ports) > 0 && svc.spec.HealthPort != 0 && t.owners.healthPort(svc) == 0 {
		c := healthPort(svc.spec.HealthPort)
		problems = append(problems, taken(c.String(), t.owners.queues[c][0].svc))
	}
	t.warnNew(svc.key.String(), svc.taken, problems)
	svc.taken = problems
	t.settle(svc, 0)
}

// distinct lists each of all once, without me.
func distinct(all []*service, me *service) []*service {
	var list []*service
	for _, svc := range all {
		if svc != me && !slices.Contains(list, svc) {
			list = append(list, svc)
		}
	}
	return list
}

// settle puts in place what svc comes to in one family, zero standing for all. It
// reports whether any value changed.
func (t *Tracker) settle(svc *service, family sdk.Family) bool {
	records := svc.records()
	svc.ready = reach.LocalReady(records, t.here)
	t.check(svc)
	svc.troubled = t.since(svc.troubled, svc.hasProblems())
	changed := false
	for i := range svc.ports {
		p := &svc.ports[i]
		if p.Family == family || family != sdk.IPv4 && family != sdk.IPv6 {
			changed = t.put(p.name, t.value(svc, p, records)) || changed
		}
	}
	return changed
}

func (s *service) records() []*reach.Slice {
	records := make([]*reach.Slice, len(s.slices))
	for i, sl := range s.slices {
		records[i] = &sl.record
	}
	return records
}

// value returns what p comes to. A port that owns no frontend is not served.
func (t *Tracker) value(svc *service, p *port, records []*reach.Slice) *sdk.Service {
	lists := reach.Choose(records, p.Port, p.Family, t.here)
	p.ready, p.total = lists.Ready, lists.Total
	p.empty = t.since(p.empty, len(lists.Cluster) == 0)
	if len(p.owned) == 0 {
		return nil
	}
	return &sdk.Service{
		Name:       p.name,
		Frontends:  p.owned,
		Cluster:    lists.Cluster,
		Local:      lists.Local,
		Serving:    lists.Serving,
		Affinity:   svc.spec.Affinity,
		HealthPort: t.owners.healthPort(svc),
	}
}

// since returns since when something is so, if it is: since before, or from now on.
func (t *Tracker) since(before time.Time, is bool) time.Time {
	switch {
	case !is:
		return time.Time{}
	case before.IsZero():
		return t.now()
	}
	return before
}

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
	return slices.SortedFunc(maps.Values(t.checks), func(a, b HealthCheck) int {
		return strings.Compare(a.Key.String(), b.Key.String())
	})
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
	post(t.checked)
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
