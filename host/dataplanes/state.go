// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk"
)

// State returns what the dataplane that serves would be sent first if it began a session now.
func (set *Set) State() (admin.State, error) {
	main := set.serving()
	u, known := set.Tracker.Whole(main.status().Description.Features)
	if !known {
		return admin.State{}, errNotSynced(main.name)
	}
	return StateOf(u), nil
}

// StateOf writes a Full as a state.
func StateOf(u sdk.Update) admin.State {
	s := admin.State{Meta: admin.Meta{APIVersion: admin.APIVersion, Kind: "State"}, Services: []admin.StateService{}}
	if u.Node != nil {
		s.Node = stateNode(*u.Node)
	}
	for _, svc := range u.Set {
		s.Services = append(s.Services, stateService(svc))
	}
	return s
}

func stateNode(n sdk.Node) admin.StateNode {
	c := n.Conntrack
	return admin.StateNode{
		Name: n.Name, Addresses: n.Addrs, NodePorts: n.NodePorts,
		PodRanges: n.Pods.CIDRs, PodBridge: n.Pods.Bridge, PodInterface: n.Pods.InterfacePrefix, PodCIDRs: n.PodCIDRs,
		MasqueradeAll: n.MasqueradeAll, MasqueradeBit: n.MasqueradeBit, ServiceCIDRs: n.ServiceCIDRs,
		Conntrack: admin.StateConntrack{
			Max: c.Max, TCPEstablishedTimeout: spelled(c.TCPEstablishedTimeout), TCPCloseWaitTimeout: spelled(c.TCPCloseWaitTimeout),
			TCPBeLiberal: c.TCPBeLiberal, UDPTimeout: spelled(c.UDPTimeout), UDPStreamTimeout: spelled(c.UDPStreamTimeout),
		},
	}
}

func stateService(svc sdk.Service) admin.StateService {
	s := admin.StateService{
		Namespace: svc.Name.Namespace, Service: svc.Name.Service, Port: svc.Name.Port,
		Protocol: svc.Name.Protocol.String(), Family: svc.Name.Family.String(),
		Frontends: []admin.StateFrontend{}, Cluster: stateEndpoints(svc.Cluster), Local: stateEndpoints(svc.Local),
		Serving: svc.Serving, Affinity: spelled(svc.Affinity), HealthPort: svc.HealthPort, Hints: svc.Hints,
	}
	for _, f := range svc.Frontends {
		s.Frontends = append(s.Frontends, admin.StateFrontend{Kind: f.Kind.String(), Address: f.Addr, Policy: f.Policy.String(), Sources: f.Sources})
	}
	return s
}

func stateEndpoints(list []sdk.Endpoint) []admin.StateEndpoint {
	all := []admin.StateEndpoint{}
	for _, ep := range list {
		all = append(all, admin.StateEndpoint{Address: ep.Addr, OnNode: ep.OnNode})
	}
	return all
}

// spelled writes a time; none where it is zero.
func spelled(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// UpdateOf reads a state as the Full that leads to it. Every Service is checked, and the error names
// all that is wrong.
func UpdateOf(s admin.State) (sdk.Update, error) {
	r := &stateReader{}
	node := r.node(s.Node)
	u := sdk.Update{To: 1, Full: true, Node: &node}
	for i, svc := range s.Services {
		r.where = fmt.Sprintf("services[%d] (%s/%s)", i, svc.Namespace, svc.Service)
		wrong := len(r.errs)
		read := r.service(svc)
		read.Normalize()
		if err := read.Check(); err != nil && len(r.errs) == wrong {
			r.wrong("%v", err)
		}
		u.Set = append(u.Set, read)
	}
	return u, errors.Join(r.errs...)
}

// A stateReader collects what is wrong in a state.
type stateReader struct {
	where string
	errs  []error
}

func (r *stateReader) wrong(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: %w", r.where, fmt.Errorf(format, args...)))
}

func (r *stateReader) node(n admin.StateNode) sdk.Node {
	r.where = "node.conntrack"
	c := n.Conntrack
	return sdk.Node{
		Name: n.Name, Addrs: n.Addresses, NodePorts: n.NodePorts,
		Pods:     sdk.Pods{CIDRs: n.PodRanges, Bridge: n.PodBridge, InterfacePrefix: n.PodInterface},
		PodCIDRs: n.PodCIDRs, MasqueradeAll: n.MasqueradeAll, MasqueradeBit: n.MasqueradeBit, ServiceCIDRs: n.ServiceCIDRs,
		Conntrack: sdk.ConntrackLimits{
			Max: c.Max, TCPEstablishedTimeout: r.duration(c.TCPEstablishedTimeout), TCPCloseWaitTimeout: r.duration(c.TCPCloseWaitTimeout),
			TCPBeLiberal: c.TCPBeLiberal, UDPTimeout: r.duration(c.UDPTimeout), UDPStreamTimeout: r.duration(c.UDPStreamTimeout),
		},
	}
}

func (r *stateReader) service(s admin.StateService) sdk.Service {
	svc := sdk.Service{
		Name: sdk.Name{
			Namespace: s.Namespace, Service: s.Service, Port: s.Port,
			Protocol: oneOf(r, "protocol", s.Protocol, sdk.TCP, sdk.UDP, sdk.SCTP),
			Family:   oneOf(r, "family", s.Family, sdk.IPv4, sdk.IPv6),
		},
		Cluster: readEndpoints(s.Cluster), Local: readEndpoints(s.Local),
		Serving: s.Serving, Affinity: r.duration(s.Affinity), HealthPort: s.HealthPort, Hints: s.Hints,
	}
	for _, f := range s.Frontends {
		svc.Frontends = append(svc.Frontends, sdk.Frontend{
			Kind: oneOf(r, "kind", f.Kind, sdk.ClusterIP, sdk.NodePort, sdk.ExternalIP, sdk.LoadBalancer),
			Addr: f.Address, Policy: oneOf(r, "policy", f.Policy, sdk.Cluster, sdk.Local), Sources: f.Sources,
		})
	}
	return svc
}

func readEndpoints(list []admin.StateEndpoint) (all []sdk.Endpoint) {
	for _, ep := range list {
		all = append(all, sdk.Endpoint{Addr: ep.Address, OnNode: ep.OnNode})
	}
	return all
}

func (r *stateReader) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		r.wrong("%v", err)
	}
	return d
}

// oneOf returns the value that is written so.
func oneOf[T fmt.Stringer](r *stateReader, what, text string, values ...T) (none T) {
	for _, v := range values {
		if v.String() == text {
			return v
		}
	}
	r.wrong("%s: want one of %v, not %q", what, values, text)
	return none
}
