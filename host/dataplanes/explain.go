// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// Explain says what is to become of a packet on this node by the contract, why, and what the
// dataplane that serves has there instead.
func (set *Set) Explain(ctx context.Context, q admin.Question) (admin.Explanation, error) {
	own, err := addressesNow()
	if err != nil {
		return admin.Explanation{}, err
	}
	pod, err := set.pod(ctx, &q, own)
	if err != nil {
		return admin.Explanation{}, err
	}
	x := explanation{Explanation: admin.Explanation{Question: q, Steps: []admin.Step{}, Endpoints: []admin.Share{}}, node: set.Tracker.Node(), own: own}
	if pod != "" {
		x.step("pod", pod)
	}
	m := set.Tracker.Match(q.To, protocols[q.Protocol], own)
	if m.Why != "" {
		x.unmatched(m)
		set.trace(ctx, &x, m)
		return x.Explanation, nil
	}
	x.Service, x.Frontend = m.Service.Name.String(), m.Frontend.String()
	x.step("frontend", fmt.Sprintf("%s of %s", x.Frontend, x.Service))
	x.decide(m)
	x.limit(set.serving().status().Description.Limits)
	set.observe(ctx, &x, m)
	set.trace(ctx, &x, m)
	x.remedy(m)
	return x.Explanation, nil
}

var protocols = map[string]sdk.Protocol{"tcp": sdk.TCP, "udp": sdk.UDP, "sctp": sdk.SCTP}

// addressesNow returns whether an address is one of this machine's at this moment.
func addressesNow() (func(netip.Addr) bool, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("this machine's addresses: %w", err)
	}
	own := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	return func(addr netip.Addr) bool { return own[addr] || addr.IsLoopback() }, nil
}

// An explanation is one in the making.
type explanation struct {
	admin.Explanation
	node  sdk.Node
	own   func(netip.Addr) bool
	local bool // the endpoint is chosen from those of this node
}

func (x *explanation) step(question, answer string) {
	x.Steps = append(x.Steps, admin.Step{Question: question, Answer: answer})
}

// unmatched explains a packet that no frontend is for.
func (x *explanation) unmatched(m track.Match) {
	x.step("frontend", "none: "+m.Why)
	x.Verdict = admin.VerdictPass
	if m.Depends {
		x.Verdict = admin.VerdictCannotTell
		x.Remedies = append(x.Remedies, "send to another address of this node, or see the option with pointsman config show")
	}
}

// decide takes the contract's decision. Where pods are told by their interface, which a question does not
// name, an address alone may not be enough.
func (x *explanation) decide(m track.Match) {
	from, why, known := x.caller(m)
	route, steps := m.Route(from, x.node)
	if !known {
		as := from
		as.From = sdk.OnPod
		pods, _ := m.Route(as, x.node)
		if pods.Verdict != route.Verdict || pods.Masquerade != route.Masquerade || !slices.Equal(pods.Endpoints, route.Endpoints) {
			x.step("caller", why)
			x.Verdict = admin.VerdictCannotTell
			x.Remedies = append(x.Remedies, fmt.Sprintf("ask for pod:%s if that is a pod of this node, or for outside:%s", from.Addr, from.Addr))
			return
		}
	}
	x.step("caller", why)
	for _, s := range steps {
		x.step(s.Question, s.Answer)
	}
	x.Verdict = route.Verdict.String()
	x.local = m.Frontend.Policy == sdk.Local && (!m.Frontend.External() || from.From == sdk.Elsewhere)
	for _, ep := range route.Endpoints {
		x.Endpoints = append(x.Endpoints, admin.Share{Address: ep.Addr.String(), Share: 1 / float64(len(route.Endpoints)), Masquerade: route.Masquerades(ep, from)})
	}
	if route.Verdict == sdk.Forward && m.Service.Affinity > 0 {
		x.step("affinity", fmt.Sprintf("a client that called within the last %s keeps its endpoint, as long as that is one of these", m.Service.Affinity))
	}
}

// limit says where the dataplane does not do what the contract asks, as it declares itself.
func (x *explanation) limit(limits []sdk.Limit) {
	for _, l := range limits {
		switch {
		case l == sdk.LimitNoDrop && x.Verdict == sdk.Drop.String():
			x.Verdict = sdk.Reject.String()
		case l == sdk.LimitNoClientAddress && x.Verdict == sdk.Forward.String():
			for i := range x.Endpoints {
				x.Endpoints[i].Masquerade = true
			}
		case l == sdk.LimitAffinityPerFrontend && x.answer("affinity") != "":
		default:
			continue
		}
		x.step("limit", fmt.Sprintf("%s: %s", l, Meaning(l)))
	}
}

// caller returns the packet's sender, and whether it is known where that stands.
func (x *explanation) caller(m track.Match) (from sdk.Caller, why string, known bool) {
	from.Addr = x.From
	if x.Caller == admin.CallerNode || x.Caller == admin.CallerAny && x.own(x.From) {
		from.From = sdk.OnNode
		if !from.Addr.IsValid() {
			from.Addr = x.nodeAddr()
		}
		return from, fmt.Sprintf("a process of this node, with the address %s", from.Addr), true
	}
	pods := x.node.Pods
	switch {
	case x.Caller == admin.CallerPod:
		from.From = sdk.OnPod
		return from, "a pod of this node, as you say", true
	case x.Caller == admin.CallerOutside:
		return from, "another machine, as you say", true
	case pods.Contains(from.Addr, ""):
		from.From = sdk.OnPod
		return from, fmt.Sprintf("a pod of this node: %s is in %s", from.Addr, phrase.List(phrase.Texts(pods.CIDRs))), true
	case pods.Bridge != "" || pods.InterfacePrefix != "":
		return from, "this node tells its pods by the interface that their packets come in on, which is not known here", false
	case !pods.Known(m.Service.Name.Family):
		return from, "this node cannot tell its pods from other machines", true
	}
	return from, fmt.Sprintf("another machine: %s is in none of %s", from.Addr, phrase.List(phrase.Texts(pods.CIDRs))), true
}

// nodeAddr returns the address by which a process of this node calls: the one it calls, if that
// is the node's own, and else the node's first one of the family.
func (x *explanation) nodeAddr() netip.Addr {
	if x.own(x.To.Addr()) {
		return x.To.Addr()
	}
	for _, addr := range x.node.Addrs {
		if addr.Is4() == x.To.Addr().Is4() {
			return addr
		}
	}
	return netip.Addr{}
}

// observe adds what the dataplane has of the frontend, and which endpoints it does not use.
func (set *Set) observe(ctx context.Context, x *explanation, m track.Match) {
	key := track.Key{Namespace: m.Service.Name.Namespace, Name: m.Service.Name.Service}
	s, endpoints, known := set.Tracker.Explain(key)
	i := slices.IndexFunc(s.Ports, func(p track.PortStatus) bool { return p.Service.Name == m.Service.Name })
	if !known || i < 0 {
		return // it was deleted meanwhile
	}
	main := set.serving()
	x.State, x.Why, _ = main.state(s, s.Ports[i])
	for _, e := range endpoints[i] {
		used := slices.ContainsFunc(x.Endpoints, func(s admin.Share) bool { return s.Address == e.Addr.String() })
		if why := e.NotCluster; !used && x.Verdict != admin.VerdictCannotTell {
			if x.local {
				why = e.NotLocal
			}
			if why != "" {
				x.Unused = append(x.Unused, admin.Unused{Address: e.Addr.String(), Why: why})
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readBack)
	defer cancel()
	served, err := main.inspect(ctx, s)
	if err != nil {
		x.Unread = err.Error()
		return
	}
	for _, row := range compare(m.Service, served) {
		if row.Frontend == x.Frontend {
			x.Programmed = &row
		}
	}
}

// remedy says what may be done where the packet does not reach an endpoint.
func (x *explanation) remedy(m track.Match) {
	add := func(format string, args ...any) { x.Remedies = append(x.Remedies, fmt.Sprintf(format, args...)) }
	service := m.Service.Name.Namespace + "/" + m.Service.Name.Service
	if x.State != "" && x.State != health.Served && x.State != health.NoEndpoints {
		add("it is %s, so that the kernel may have something else; see pointsman service show %s", x.State, service)
	}
	turnedAway := x.Verdict == sdk.Drop.String() || x.Verdict == sdk.Reject.String()
	switch {
	case turnedAway && !strings.HasPrefix(x.answer("allowed"), "yes"):
		add("call from another address, or add it to spec.loadBalancerSourceRanges of %s", service)
	case turnedAway && len(m.Service.Cluster) > 0:
		add("call a node that has an endpoint, or set the traffic policy of %s to Cluster", service)
	case turnedAway:
		add("see why no endpoint may be used: pointsman service show %s", service)
	}
	if rule := x.stopped(); rule != "" && !turnedAway {
		add("this is what stops it: %s; if Pointsman did not write that, remove it, or let the packet pass before it", rule)
	}
	if x.Programmed != nil && x.Programmed.Differs != "" {
		add("the dataplane has something else there: it puts back what is gone within seconds, and takes away what was added within minutes; if it stays so, see pointsman events and pointsman plugin logs")
	}
}

// answer returns how a question was settled; empty: it did not come to that.
func (x *explanation) answer(question string) string {
	for _, s := range x.Steps {
		if s.Question == question {
			return s.Answer
		}
	}
	return ""
}
