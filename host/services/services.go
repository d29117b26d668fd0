// SPDX-License-Identifier: Apache-2.0

/*
Package services answers what operators ask about the Services of a node, and about packets to them: which ports are
served and why others are not (services.go), what should happen to a packet and what the node does with it
(explain.go), what the kernel has that it should not have (diff.go), and which packets are dropped (watch.go). It
changes nothing. compare.go compares a Service with what a dataplane serves; the host uses it also to verify a
dataplane before a swap.
*/
package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A Dataplane is a dataplane of the node. It is safe for concurrent use.
type Dataplane interface {
	Name() string
	Process() (*wire.Remote, error) // an error if no process is in session
	Progress() track.CursorStatus
	Standing(port sdk.Name) track.Standing
}

// Queries answers questions. It is safe for concurrent use.
type Queries struct {
	Tracker *track.Tracker
	Serving func() Dataplane   // the serving one, or the one that should serve
	Swap    func() *admin.Swap // the swap in progress; nil if there is none
}

// Services returns all Services in order of name, with the state of each port in the serving
// dataplane. unknown is the reason why the list is incomplete; empty if it is complete.
func (q Queries) Services() (list []admin.Service, unknown string) {
	main := q.Serving()
	list = []admin.Service{}
	for s := range q.Tracker.All() {
		list = append(list, portsOf(s, main))
	}
	return list, q.Unanswered()
}

// readBack limits how long a dataplane may take to read what it serves.
const readBack = 10 * time.Second

// Service returns one Service, why each endpoint is used or not, and what the dataplane reads
// from the kernel or its sockets.
func (q Queries) Service(ctx context.Context, namespace, name string) (admin.ServiceDetail, error) {
	key := track.Key{Namespace: namespace, Name: name}
	s, endpoints, known := q.Tracker.Explain(key)
	if !known {
		return admin.ServiceDetail{}, q.unknownService(key)
	}
	main := q.Serving()
	detail := admin.ServiceDetail{Service: portsOf(s, main), Notes: s.Notes, EndpointSlices: append([]string{}, s.Slices...), HealthPort: int(s.HealthPort), LocalReady: s.LocalReady.IPv4 + s.LocalReady.IPv6}
	ctx, cancel := context.WithTimeout(ctx, readBack)
	defer cancel()
	served, err := Inspect(ctx, main, func(name sdk.Name) bool { return name.Namespace == namespace && name.Service == s.Name })
	if err != nil {
		detail.KernelUnread = err.Error()
	}
	for i := range detail.Ports {
		for _, e := range endpoints[i] {
			detail.Ports[i].Endpoints = append(detail.Ports[i].Endpoints, admin.Endpoint{
				Address: e.Addr.String(), Node: e.Node, Zone: e.Zone, Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating,
				NotCluster: e.NotCluster, NotLocal: e.NotLocal,
			})
		}
		if err == nil {
			detail.Ports[i].Kernel = Compare(s.Ports[i].Service, served[s.Ports[i].Service.Name])
		}
	}
	return detail, nil
}

func (q Queries) unknownService(key track.Key) error {
	if why := q.Unanswered(); why != "" {
		return &admin.Error{Code: http.StatusServiceUnavailable, What: "cannot tell yet whether there is a Service " + key.String(), Why: "the source: " + why}
	}
	return &admin.Error{Code: http.StatusNotFound, What: "no Service " + key.String(), Try: "pointsman service list"}
}

// portsOf returns s with the state of each port in the dataplane.
func portsOf(s track.ServiceStatus, p Dataplane) admin.Service {
	ports := []admin.Port{}
	for _, port := range s.Ports {
		to := admin.Port{
			Name:      port.Service.Name.Port,
			Network:   port.Service.Name.Network(),
			Frontends: phrase.Texts(port.Service.Frontends),
			Cluster:   phrase.Texts(port.Service.Cluster),
			Local:     phrase.Texts(port.Service.Local),
			Ready:     port.Ready,
			Total:     port.Total,
			Policies:  policies(port.Service),

			AffinitySeconds: int(port.Service.Affinity / time.Second),
		}
		to.State, to.Why, to.Since = state(s, port, p)
		ports = append(ports, to)
	}
	return admin.Service{Namespace: s.Namespace, Name: s.Name, Ports: ports, Problems: phrase.Texts(s.Problems)}
}

func policies(s sdk.Service) []string {
	used := []string{}
	for _, policy := range []sdk.Policy{sdk.Cluster, sdk.Local} {
		if s.Uses(policy) {
			used = append(used, policy.String())
		}
	}
	return used
}

// state returns the state of one port of s, the reason, and since when. If several states
// apply, it returns the most serious one.
func state(s track.ServiceStatus, port track.PortStatus, p Dataplane) (state, why string, since time.Time) {
	var now track.Standing
	if len(port.Service.Frontends) > 0 { // otherwise there is nothing to send
		now = p.Standing(port.Service.Name)
	}
	refusal := (*sdk.Refusal)(nil)
	switch {
	case errors.As(now.Err, &refusal):
		return health.Refused, now.Err.Error(), now.Since
	case now.Err != nil:
		return health.Failed, now.Err.Error(), now.Since
	case now.Lacks != nil:
		return health.Withheld, lacks(now.Lacks), now.Since
	case len(s.Problems) > 0:
		return health.ReasonOf(s.Problems[0].Reason), s.Problems[0].Message, s.Troubled
	case now.Pending:
		return health.Pending, "", now.Since
	case !port.Empty.IsZero():
		return health.NoEndpoints, port.Misnamed, port.Empty
	}
	return health.Served, "", now.Since
}

// Unserved returns the Services that are not served as specified, with the reasons, in order of
// name.
func (q Queries) Unserved() []admin.Problem {
	list := []admin.Problem{}
	for _, u := range UnservedBy(q.Serving().Progress()) {
		list = append(list, admin.Problem{Service: u.Name.String(), Reason: u.Reason, Why: u.Why})
	}
	for _, s := range q.Tracker.Troubled() {
		for _, p := range s.Problems {
			list = append(list, admin.Problem{Service: s.Key.String(), Reason: health.ReasonOf(p.Reason), Why: p.Message})
		}
	}
	slices.SortStableFunc(list, func(a, b admin.Problem) int { return cmp.Compare(a.Service, b.Service) })
	return list
}

// An Unserved is a port of a Service that is not served as specified.
type Unserved struct {
	Name   sdk.Name
	Reason string // a reason from package health
	Why    string
}

// UnservedBy returns the ports that a dataplane with this progress does not serve as specified.
func UnservedBy(c track.CursorStatus) []Unserved {
	var all []Unserved
	for _, f := range c.Failed {
		reason, refusal := health.Failed, (*sdk.Refusal)(nil)
		if errors.As(f.Err, &refusal) {
			reason = health.Refused
		}
		all = append(all, Unserved{f.Name, reason, f.Err.Error()})
	}
	for _, w := range c.Withheld {
		all = append(all, Unserved{w.Name, health.Withheld, lacks(w.Lacks)})
	}
	return all
}

func lacks(features []sdk.Feature) string {
	return "the dataplane does not support " + phrase.List(features)
}

// Inspect returns what a dataplane reads from the kernel or its sockets, of the Services for which
// wanted returns true.
func Inspect(ctx context.Context, p Dataplane, wanted func(sdk.Name) bool) (map[sdk.Name][]sdk.Served, error) {
	found := make(map[sdk.Name][]sdk.Served)
	remote, err := p.Process()
	if err == nil {
		err = remote.Inspect(ctx, func(s sdk.Served) error {
			if wanted(s.Name) {
				found[s.Name] = append(found[s.Name], s)
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", p.Name(), err)
	}
	return found, nil
}
