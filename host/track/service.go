// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A service is a Kubernetes Service and the EndpointSlices that belong to it.
type service struct {
	key    Key
	spec   *reach.Service // nil if there is no such Service, or it is not ours to serve
	slices []*slice       // in order of name
	ports  []port         // derived from spec for this node
	held   []claim        // everything the Service asks for, owned or not

	problems []reach.Problem // of its spec
	warnings []reach.Problem // parts of its spec that are served but may be a mistake
	taken    []reach.Problem // frontends that other Services own
	notes    []string        // parts of its spec that are left out on purpose
	ready    reach.Counts    // addresses on this node that are ready

	troubled time.Time // since when there are problems; zero if there are none
}

// A port is one port of a Service in one family, which the sdk calls a Service.
type port struct {
	reach.PortFrontends
	name  sdk.Name
	owned []sdk.Frontend // the elements of Frontends that this port owns

	ready, total int       // numbers of endpoints, on any node
	empty        time.Time // since when no endpoint is usable; zero if one is
}

// refreshService recomputes the frontends of svc, then recomputes svc and all Services that
// gained or lost an address.
func (t *Tracker) refreshService(svc *service) {
	before := svc.ports
	touched := make(map[*service]bool)
	t.owners.release(svc, touched)
	t.buildPorts(svc)
	t.owners.claim(svc, touched)
	if delete(t.checked, svc); len(svc.ports) > 0 && svc.spec.HealthPort != 0 {
		t.checked[svc] = true
	}
	for _, p := range before {
		if !slices.ContainsFunc(svc.ports, func(q port) bool { return q.name == p.name }) {
			t.setValue(p.name, nil)
		}
	}
	t.assignFrontends(svc)
	delete(touched, svc)
	for other := range touched {
		t.assignFrontends(other)
	}
}

// buildPorts builds the ports of svc from its spec.
func (t *Tracker) buildPorts(svc *service) {
	before := svc.ports
	svc.ports = nil
	var problems, warnings []reach.Problem
	if svc.spec != nil {
		var all []reach.PortFrontends
		all, problems, warnings, svc.notes = reach.Frontends(svc.spec, t.thisNode)
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

// assignFrontends assigns svc the frontends that it owns, records a problem for each of the
// others, and recomputes svc.
func (t *Tracker) assignFrontends(svc *service) {
	var problems []reach.Problem
	for i := range svc.ports {
		p := &svc.ports[i]
		p.owned = slices.DeleteFunc(slices.Clone(p.Frontends), func(f sdk.Frontend) bool {
			owner, port := t.owners.owner(svc, i, f)
			lost := owner != svc || port != i
			if lost {
				problems = append(problems, takenProblem(f.String(), owner))
			}
			return lost
		})
		if len(p.owned) == len(p.Frontends) {
			p.owned = p.Frontends // one copy is enough
		}
	}
	if len(svc.ports) > 0 && svc.spec.HealthPort != 0 && t.owners.healthPort(svc) == 0 {
		owner := t.owners[healthPort(svc.spec.HealthPort)][0].svc
		problems = append(problems, takenProblem(fmt.Sprintf("health check node port %d", svc.spec.HealthPort), owner))
	}
	t.warnNew(svc.key.String(), svc.taken, problems)
	svc.taken = problems
	t.recomputeService(svc, 0)
}

// recomputeService recomputes the values of svc in one family (0 for both) and reports whether
// any value changed.
func (t *Tracker) recomputeService(svc *service, family sdk.Family) bool {
	records := svc.records()
	svc.ready = reach.LocalReady(records, t.thisNode)
	svc.troubled = t.since(svc.troubled, len(svc.allProblems()) > 0)
	changed := false
	for i := range svc.ports {
		p := &svc.ports[i]
		if p.Family == family || family != sdk.IPv4 && family != sdk.IPv6 {
			changed = t.setValue(p.name, t.value(svc, p, records)) || changed
		}
	}
	return changed
}

// records returns the records of the slices of svc.
func (s *service) records() []*reach.Slice {
	records := make([]*reach.Slice, len(s.slices))
	for i, sl := range s.slices {
		records[i] = &sl.record
	}
	return records
}

// value returns the desired value of p. A port that owns no frontend is not served.
func (t *Tracker) value(svc *service, p *port, records []*reach.Slice) *sdk.Service {
	lists := reach.Choose(records, p.Port, p.Family, t.thisNode)
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

// since returns the time since when a condition holds: before if it held already, else now. It
// returns zero if the condition does not hold.
func (t *Tracker) since(before time.Time, is bool) time.Time {
	switch {
	case !is:
		return time.Time{}
	case before.IsZero():
		return t.now()
	}
	return before
}

// A HealthCheck is the answer for a Service's healthCheckNodePort. Load balancers use it to ask
// whether this node has a ready endpoint.
type HealthCheck struct {
	Key
	Port  uint16
	Ready reach.Counts // ready addresses on this node
	Ports reach.Counts // ports of the Service in each family; a family without ports is not listened on
}

// HealthChecks returns the health checks of all Services that own their healthCheckNodePort, in
// order of name. Before Synced it returns none: load balancers must not take Services that are
// not loaded yet for Services without endpoints.
func (t *Tracker) HealthChecks() (list []HealthCheck) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for svc := range t.checked {
		port := t.owners.healthPort(svc)
		if port == 0 || !t.synced {
			continue
		}
		check := HealthCheck{Key: svc.key, Port: port, Ready: svc.ready}
		for _, p := range svc.ports {
			check.Ports.Add(p.name.Family)
		}
		list = append(list, check)
	}
	slices.SortFunc(list, func(a, b HealthCheck) int { return a.Key.compare(b.Key) })
	return list
}

// A Lack is a kind of traffic that is dropped on this node because the policy is Local and all
// usable endpoints are on other nodes.
type Lack struct {
	Internal bool // traffic to the ClusterIP; otherwise traffic from outside
	Family   sdk.Family
}

// Lacks returns the number of Services in each Lack.
func (t *Tracker) Lacks() map[Lack]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make(map[Lack]int)
	found := make(map[Lack]bool) // of one Service
	for _, svc := range t.services {
		for _, p := range svc.ports {
			value := t.values[p.name]
			if value == nil || len(value.Local) > 0 || len(value.Cluster) == 0 {
				continue
			}
			for _, f := range value.Frontends {
				if f.Policy == sdk.Local {
					found[Lack{Internal: !f.External(), Family: value.Name.Family}] = true
				}
			}
		}
		for lack := range found {
			counts[lack]++
		}
		clear(found)
	}
	return counts
}
