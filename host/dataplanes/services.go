// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// Services returns all Services in order of name, with the state of each port in the serving
// dataplane. unknown is the reason why the list is incomplete; empty if it is complete.
func (set *Set) Services() (list []admin.Service, unknown string) {
	main := set.serving()
	list = []admin.Service{}
	for s := range set.Tracker.All() {
		list = append(list, main.service(s))
	}
	return list, set.Unanswered()
}

// readBack limits how long a dataplane may take to read what it serves.
const readBack = 10 * time.Second

// Service returns one Service, why each endpoint is used or not, and what the dataplane reads
// from the kernel or its sockets.
func (set *Set) Service(ctx context.Context, namespace, name string) (admin.ServiceDetail, error) {
	key := track.Key{Namespace: namespace, Name: name}
	s, endpoints, known := set.Tracker.Explain(key)
	if !known {
		return admin.ServiceDetail{}, set.unknownService(key)
	}
	main := set.serving()
	detail := admin.ServiceDetail{Service: main.service(s), Notes: s.Notes, EndpointSlices: append([]string{}, s.Slices...), HealthPort: int(s.HealthPort), LocalReady: s.LocalReady.IPv4 + s.LocalReady.IPv6}
	ctx, cancel := context.WithTimeout(ctx, readBack)
	defer cancel()
	served, err := main.inspect(ctx, func(name sdk.Name) bool { return name.Namespace == namespace && name.Service == s.Name })
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
			detail.Ports[i].Kernel = compare(s.Ports[i].Service, served[s.Ports[i].Service.Name])
		}
	}
	return detail, nil
}

func (set *Set) unknownService(key track.Key) error {
	if why := set.Unanswered(); why != "" {
		return &admin.Error{Code: http.StatusServiceUnavailable, What: "cannot tell yet whether there is a Service " + key.String(), Why: "the source: " + why}
	}
	return &admin.Error{Code: http.StatusNotFound, What: "no Service " + key.String(), Try: "pointsman service list"}
}

// service returns s with the state of each port in the dataplane.
func (p *dataplane) service(s track.ServiceStatus) admin.Service {
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
		to.State, to.Why, to.Since = p.state(s, port)
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
func (p *dataplane) state(s track.ServiceStatus, port track.PortStatus) (state, why string, since time.Time) {
	var now track.Standing
	if len(port.Service.Frontends) > 0 { // otherwise there is nothing to send
		now = p.standing(port.Service.Name)
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

// standing returns the standing of a port of a Service in the dataplane. Without a session it
// is pending.
func (p *dataplane) standing(name sdk.Name) track.Standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.session.hasFeed() {
		return track.Standing{Pending: true}
	}
	return p.session.cursor.Standing(name)
}

// inspect returns what the dataplane reads from the kernel or its sockets, of the Services for
// which wanted returns true.
func (p *dataplane) inspect(ctx context.Context, wanted func(sdk.Name) bool) (map[sdk.Name][]sdk.Served, error) {
	remote := p.remote()
	if remote == nil {
		return nil, fmt.Errorf("inspect %s: %w", p.name, errNoProcess)
	}
	found := make(map[sdk.Name][]sdk.Served)
	err := remote.Inspect(ctx, func(s sdk.Served) error {
		if wanted(s.Name) {
			found[s.Name] = append(found[s.Name], s)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", p.name, err)
	}
	return found, nil
}

func everyName(sdk.Name) bool { return true }

// differences returns an error that names the frontends of the Services that are not served as
// specified, or nil. It ignores unexpected frontends: they may belong to Services that failed or
// are withheld, and a swap does not depend on them.
func differences(services []sdk.Service, found map[sdk.Name][]sdk.Served) error {
	var all []string
	for _, s := range services {
		for _, row := range compare(s, found[s.Name])[:len(s.Frontends)] {
			if row.Differs != "" {
				all = append(all, fmt.Sprintf("%s of %s: %s; served now: %s", row.Frontend, s.Name, row.Differs, phrase.Some(row.Endpoints)))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	text := phrase.Some(all)
	if len(found) == 0 {
		text += "; Inspect names no frontend: in Standby a dataplane must name those that it would serve when Active"
	}
	return fmt.Errorf("the kernel does not serve what was sent: %s", text)
}

// compare compares s with the frontends in found, which a dataplane has read. It returns a row for each frontend of s,
// and then one for each superfluous frontend.
func compare(s sdk.Service, found []sdk.Served) []admin.Programmed {
	list := []admin.Programmed{}
	for _, f := range s.Frontends {
		row := admin.Programmed{Frontend: f.String(), Endpoints: []string{}}
		want := distinct(s.Endpoints(f.Policy), func(ep sdk.Endpoint) netip.AddrPort { return ep.Addr })
		i := slices.IndexFunc(found, func(o sdk.Served) bool {
			return o.Frontend.Kind == f.Kind && o.Frontend.Addr == f.Addr && o.Frontend.Policy == f.Policy
		})
		if i < 0 {
			row.Differs = "it is missing"
			list = append(list, row)
			continue
		}
		got := distinct(found[i].Endpoints, func(addr netip.AddrPort) netip.AddrPort { return addr })
		row.Endpoints = phrase.Texts(got)
		if !slices.Equal(got, want) {
			row.Differs = "expected: " + phrase.List(phrase.Texts(want))
		}
		list = append(list, row)
	}
	for _, o := range found {
		if !slices.ContainsFunc(s.Frontends, func(f sdk.Frontend) bool { return f.Kind == o.Frontend.Kind && f.Addr == o.Frontend.Addr }) {
			list = append(list, admin.Programmed{Frontend: o.Frontend.String(), Endpoints: phrase.Texts(o.Endpoints), Differs: "it is unexpected"})
		}
	}
	return list
}

// distinct returns the distinct addresses of a list, sorted.
func distinct[T any](list []T, addr func(T) netip.AddrPort) []netip.AddrPort {
	addrs := make([]netip.AddrPort, 0, len(list))
	for _, item := range list {
		addrs = append(addrs, addr(item))
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	return slices.Compact(addrs)
}
