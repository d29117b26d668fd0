// SPDX-License-Identifier: Apache-2.0

package track

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A CursorStatus is the progress of one dataplane.
type CursorStatus struct {
	Sent, Acked uint64    // revisions
	Pending     int       // names that are owed or in flight; all names while a Full is owed
	Since       time.Time // since when the oldest change is owed; zero if nothing is owed
	Failed      []sdk.Failure
	Withheld    []Withheld
}

// A Withheld Service is not sent to a dataplane, because the dataplane lacks features that it
// needs.
type Withheld struct {
	Name  sdk.Name
	Lacks []sdk.Feature
}

// Status returns the progress of the dataplane.
func (c *Cursor) Status() CursorStatus {
	c.t.mu.Lock()
	defer c.t.unlock()
	s := CursorStatus{Sent: c.sent, Acked: c.acked, Pending: len(c.owed), Since: c.since()}
	if c.full {
		s.Pending = max(s.Pending, c.wanted())
	}
	for name, f := range c.failed {
		s.Failed = append(s.Failed, sdk.Failure{Name: name, Err: f.err})
	}
	for name, lacks := range c.withheld {
		s.Withheld = append(s.Withheld, Withheld{name, lacks})
	}
	slices.SortFunc(s.Failed, func(a, b sdk.Failure) int { return a.Name.Compare(b.Name) })
	slices.SortFunc(s.Withheld, func(a, b Withheld) int { return a.Name.Compare(b.Name) })
	return s
}

// A Standing is the state of one port of a Service in one dataplane. At most one of Lacks, Err
// and Pending is set, and then the Service is not served as desired.
type Standing struct {
	Since   time.Time     // since when it is in this state; for a served Service, when it was confirmed; zero if it is withheld
	Lacks   []sdk.Feature // features that the dataplane lacks, so the Service is withheld
	Err     error         // why the dataplane failed to serve or refused it
	Pending bool          // not sent yet, or not confirmed
}

// Standing returns the state of name in the dataplane.
func (c *Cursor) Standing(name sdk.Name) Standing {
	c.t.mu.Lock()
	defer c.t.unlock()
	if lacks, is := c.withheld[name]; is {
		return Standing{Lacks: lacks}
	}
	if f, is := c.failed[name]; is {
		return Standing{Since: f.since, Err: f.err}
	}
	last, confirmed := c.confirmed[name]
	d, owed := c.owed[name]
	switch {
	case owed:
		return Standing{Since: d.since, Pending: true}
	case !confirmed || c.full:
		return Standing{Since: c.since(), Pending: true}
	}
	return Standing{Since: time.Unix(last.at, 0)}
}

// Wanted returns the number of Services that the dataplane should be serving: all except failed
// and withheld ones.
func (c *Cursor) Wanted() int {
	c.t.mu.Lock()
	defer c.t.unlock()
	return c.wanted()
}

func (c *Cursor) wanted() (n int) {
	for name := range c.t.values {
		if _, failed := c.failed[name]; !failed && !c.isWithheld(name) {
			n++
		}
	}
	return n
}

// Confirmed returns the Services that the dataplane has confirmed, in no order, without those
// that it failed to serve.
func (c *Cursor) Confirmed() []sdk.Service {
	c.t.mu.Lock()
	defer c.t.unlock()
	confirmed := make([]sdk.Service, 0, len(c.confirmed))
	for name, last := range c.confirmed {
		if _, failed := c.failed[name]; !failed {
			confirmed = append(confirmed, *last.value)
		}
	}
	return confirmed
}

// since returns since when the oldest change is owed: a Service, the node, or a Full. Before
// Synced it returns zero.
func (c *Cursor) since() (oldest time.Time) {
	if !c.t.synced {
		return time.Time{}
	}
	older := func(at time.Time) {
		if !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	if since := c.fullSince; c.full {
		if c.t.syncedSince.After(since) {
			since = c.t.syncedSince
		}
		older(since)
	}
	older(c.nodeSince)
	for _, d := range c.owed {
		older(d.since)
	}
	return oldest
}

// HasSynced reports whether Synced was called.
func (t *Tracker) HasSynced() bool {
	t.mu.Lock()
	defer t.unlock()
	return t.synced
}

// Counts are the numbers of tracked objects.
type Counts struct {
	Services  int // Kubernetes Services with ports to serve
	Names     int // their ports, counted once per family
	Slices    int
	Endpoints int // in all slices
}

// Counts returns the numbers of tracked objects.
func (t *Tracker) Counts() Counts {
	t.mu.Lock()
	defer t.unlock()
	c := Counts{Names: len(t.values), Slices: len(t.slices)}
	for _, svc := range t.services {
		if len(svc.ports) > 0 {
			c.Services++
		}
	}
	for _, s := range t.slices {
		c.Endpoints += len(s.record.Endpoints)
	}
	return c
}

// Changes are the numbers of changes since the start. An object that arrives again with no
// difference that matters is not a change.
type Changes struct{ Services, Slices uint64 }

// Changes returns the numbers of changes.
func (t *Tracker) Changes() Changes {
	t.mu.Lock()
	defer t.unlock()
	return t.changes
}

// A ServiceStatus is the desired state of a Kubernetes Service on this node.
type ServiceStatus struct {
	Key
	Ports      []PortStatus
	HealthPort uint16          // its healthCheckNodePort; zero if it has none or another Service owns it
	LocalReady reach.Counts    // ready addresses on this node, as HealthPort reports
	Problems   []reach.Problem // parts that are not served as specified, and why
	Troubled   time.Time       // since when there are Problems; zero if there are none
	Warnings   []reach.Problem // parts that are served as specified but may be a mistake; only of Troubled
	Notes      []string        // parts that are left out on purpose, and why
	Slices     []string        // the names of its EndpointSlices, in order
}

// A PortStatus is one port of a Service in one family.
type PortStatus struct {
	Service sdk.Service // as sent to dataplanes; without frontends it is not served
	Ready   int         // ready endpoints, on any node
	Total   int         // all endpoints
	Empty   time.Time   // since when no endpoint is usable; zero if one is

	Misnamed string // see reach.Misnamed
}

// Troubled returns the Services that have problems or warnings, in no order. Only Key, Problems and
// Warnings are set.
func (t *Tracker) Troubled() (list []ServiceStatus) {
	t.mu.Lock()
	defer t.unlock()
	for _, svc := range t.services {
		if problems := svc.allProblems(); len(problems)+len(svc.warnings) > 0 {
			list = append(list, ServiceStatus{Key: svc.key, Problems: problems, Warnings: svc.warnings})
		}
	}
	return list
}

// All iterates over the known Services in order of name. It holds the tracker's mutex only
// while it collects the names and while it reads one Service, so changes never wait for the
// caller. In return the result is not a snapshot: each Service is read at a different time, and
// Services added during the iteration are missing.
func (t *Tracker) All() iter.Seq[ServiceStatus] {
	return func(yield func(ServiceStatus) bool) {
		t.mu.Lock()
		keys := slices.Collect(maps.Keys(t.services))
		t.mu.Unlock()
		slices.SortFunc(keys, Key.compare)
		for _, key := range keys {
			if s, known := t.Service(key); known && !yield(s) {
				return
			}
		}
	}
}

// Service returns the status of a Service, and false if it is not known.
func (t *Tracker) Service(key Key) (ServiceStatus, bool) {
	t.mu.Lock()
	defer t.unlock()
	svc := t.services[key]
	if svc == nil || svc.spec == nil {
		return ServiceStatus{}, false
	}
	return t.status(svc), true
}

// Explain returns the status of a Service and, for each of its Ports, the reason why each
// endpoint is used or not used on this node.
func (t *Tracker) Explain(key Key) (s ServiceStatus, endpoints [][]reach.Explanation, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	svc := t.services[key]
	if svc == nil || svc.spec == nil {
		return ServiceStatus{}, nil, false
	}
	records := svc.records()
	for _, p := range svc.ports {
		endpoints = append(endpoints, reach.Explain(records, p.Port, p.Family, t.thisNode))
	}
	return t.status(svc), endpoints, true
}

func (t *Tracker) status(svc *service) ServiceStatus {
	s := ServiceStatus{Key: svc.key, HealthPort: t.owners.healthPort(svc), LocalReady: svc.ready, Problems: svc.allProblems(), Troubled: svc.troubled, Notes: svc.notes}
	for _, p := range svc.ports {
		ps := PortStatus{Service: sdk.Service{Name: p.name}, Ready: p.ready, Total: p.total, Empty: p.empty}
		if p.total == 0 {
			ps.Misnamed = reach.Misnamed(svc.records(), p.Port, p.Family)
		}
		if value := t.values[p.name]; value != nil {
			ps.Service = *value
		}
		s.Ports = append(s.Ports, ps)
	}
	for _, sl := range svc.slices {
		s.Slices = append(s.Slices, sl.name)
	}
	return s
}

// allProblems returns the problems of a Service and of its EndpointSlices.
func (svc *service) allProblems() []reach.Problem {
	if svc.spec == nil {
		return nil
	}
	all := slices.Concat(svc.problems, svc.taken)
	for _, sl := range svc.slices {
		for _, p := range sl.record.Problems {
			all = append(all, reach.Problem{Reason: p.Reason, Message: "EndpointSlice " + sl.name + ": " + p.Message})
		}
	}
	return all
}

// Node returns what dataplanes must know about this node.
func (t *Tracker) Node() sdk.Node {
	t.mu.Lock()
	defer t.unlock()
	return *t.node
}
