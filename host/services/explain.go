// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// errPodName refuses a question that names a pod: only kubectl-pointsman can look up its address.
func errPodName(q admin.Question) error {
	return &admin.Error{Code: http.StatusBadRequest, What: q.Pod + " is a pod's name, and a host knows only the addresses of pods",
		Try: fmt.Sprintf("kubectl pointsman explain %s %s, or here the address that kubectl get pod -o wide prints", q.Pod, q.To)}
}

// Explain answers a question about a packet on this node: the verdict of the contract and its reasons, what the serving
// dataplane has at the frontend, and the way of the packet through the rules of the node.
func (q Queries) Explain(ctx context.Context, asked admin.Question) (admin.Explanation, error) {
	if asked.Pod != "" {
		return admin.Explanation{}, errPodName(asked)
	}
	own, err := addressesNow()
	if err != nil {
		return admin.Explanation{}, err
	}
	x := explanation{Explanation: admin.Explanation{Question: asked, Steps: []admin.Step{}, Endpoints: []admin.Share{}}, node: q.Tracker.Node(), own: own}
	if why := q.Unanswered(); why != "" {
		x.step("source", why)
		x.Verdict = admin.VerdictCannotTell
		return x.Explanation, nil
	}
	m := q.Tracker.Match(asked.To, protocols[asked.Protocol], own)
	if m.Why != "" {
		x.step("frontend", "none: "+m.Why)
		x.Verdict = admin.VerdictPass
		if m.Depends {
			x.Verdict = admin.VerdictCannotTell
		}
	} else {
		x.Service, x.Frontend = m.Service.Name.String(), m.Frontend.String()
		x.step("frontend", fmt.Sprintf("%s of %s", x.Frontend, x.Service))
		x.decide(m)
		q.observe(ctx, &x, m)
	}
	if asked.Try && asked.Protocol == "tcp" {
		x.connect(ctx)
	}
	q.walk(ctx, &x, m)
	return x.Explanation, nil
}

// Unanswered returns the reason why the set of Services is not known yet, or "" if it is known.
func (q Queries) Unanswered() string {
	if q.Tracker.HasSynced() {
		return ""
	}
	return "it has not answered yet, so the Services are not known; see pointsman status"
}

var protocols = map[string]sdk.Protocol{"tcp": sdk.TCP, "udp": sdk.UDP, "sctp": sdk.SCTP}

// addressesNow returns a function that reports whether an address belongs to this machine at
// the moment.
func addressesNow() (func(netip.Addr) bool, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("read this machine's addresses: %w", err)
	}
	own := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	return func(addr netip.Addr) bool { return own[addr] || addr.IsLoopback() }, nil
}

// An explanation is an admin.Explanation under construction.
type explanation struct {
	admin.Explanation
	node  sdk.Node
	own   func(netip.Addr) bool
	local bool // the endpoint is chosen from the endpoints on this node
}

func (x *explanation) step(question, answer string) {
	x.Steps = append(x.Steps, admin.Step{Question: question, Answer: answer})
}

func (x *explanation) try(format string, args ...any) {
	x.Remedies = append(x.Remedies, fmt.Sprintf(format, args...))
}

// decide adds the verdict of the contract. If the node recognizes pods by interface, which a
// question does not contain, the address alone may not be enough to decide.
func (x *explanation) decide(m track.Match) {
	from, why, known := x.caller(m)
	route, steps := m.Route(from, x.node)
	x.step("caller", why)
	if !known {
		as := from
		as.From = sdk.OnPod
		pods, _ := m.Route(as, x.node)
		if pods.Verdict != route.Verdict || pods.Masquerade != route.Masquerade || !slices.Equal(pods.Endpoints, route.Endpoints) {
			x.Verdict = admin.VerdictCannotTell
			x.try("ask for pod:%s if that is a pod of this node, or for outside:%s", from.Addr, from.Addr)
			return
		}
	}
	for _, s := range steps {
		x.step(s.Question, s.Answer)
	}
	x.Verdict = route.Verdict.String()
	x.local = m.Frontend.Policy == sdk.Local && (!m.Frontend.External() || from.From == sdk.Elsewhere)
	for _, ep := range route.Endpoints {
		x.Endpoints = append(x.Endpoints, admin.Share{Address: ep.Addr.String(), Share: 1 / float64(len(route.Endpoints)), Masquerade: route.Masquerades(ep, from)})
	}
	if route.Verdict == sdk.Forward && m.Service.Affinity > 0 {
		x.step("affinity", fmt.Sprintf("a client that connected within the last %s keeps its endpoint if that is one of these", m.Service.Affinity))
	}
}

// caller returns the sender of the packet, and whether its location is known.
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
		return from, "this node recognizes pods by the interface of their packets, which is not known here", false
	case !pods.Known(m.Service.Name.Family):
		return from, "this node cannot distinguish its pods from other machines", true
	}
	return from, fmt.Sprintf("another machine: %s is in none of %s", from.Addr, phrase.List(phrase.Texts(pods.CIDRs))), true
}

// nodeAddr returns the source address of a process on this node: the destination if that is an
// address of the node, else the node's first address of the family.
func (x *explanation) nodeAddr() netip.Addr {
	if x.own(x.To.Addr()) {
		return x.To.Addr()
	}
	i := slices.IndexFunc(x.node.Addrs, func(a netip.Addr) bool { return a.Is4() == x.To.Addr().Is4() })
	if i < 0 {
		return netip.Addr{}
	}
	return x.node.Addrs[i]
}

// observe adds what the dataplane has at the frontend, and which endpoints it does not use.
func (q Queries) observe(ctx context.Context, x *explanation, m track.Match) {
	key := track.Key{Namespace: m.Service.Name.Namespace, Name: m.Service.Name.Service}
	s, endpoints, known := q.Tracker.Explain(key)
	i := slices.IndexFunc(s.Ports, func(p track.PortStatus) bool { return p.Service.Name == m.Service.Name })
	if !known || i < 0 {
		return // the Service was deleted meanwhile
	}
	main := q.Serving()
	if x.State, x.Why, _ = state(s, s.Ports[i], main); x.State != health.Served && x.State != health.NoEndpoints {
		x.try("it is %s, so the kernel may differ; see pointsman service show %s", x.State, key)
	}
	for _, e := range endpoints[i] {
		why := e.NotCluster
		if x.local {
			why = e.NotLocal
		}
		used := slices.ContainsFunc(x.Endpoints, func(s admin.Share) bool { return s.Address == e.Addr.String() })
		if why != "" && !used && x.Verdict != admin.VerdictCannotTell {
			x.Unused = append(x.Unused, admin.Unused{Address: e.Addr.String(), Why: why})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readBack)
	defer cancel()
	served, err := Inspect(ctx, main, func(name sdk.Name) bool { return name == m.Service.Name })
	if err != nil {
		x.Unread = err.Error()
		return
	}
	for _, row := range Compare(m.Service, served[m.Service.Name]) {
		if row.Frontend == x.Frontend {
			x.Programmed = &row
		}
	}
}

// maxTried limits the number of endpoints that connect tries.
const maxTried = 8

// connect opens one connection from this node to each endpoint, and adds the results.
func (x *explanation) connect(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range x.Endpoints[:min(len(x.Endpoints), maxTried)] {
		e := &x.Endpoints[i]
		wg.Go(func() {
			conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", e.Address)
			e.Tried = connectResult(err)
			if err == nil {
				conn.Close()
			}
		})
	}
	wg.Wait()
}

// connectResult describes the result of a connection attempt.
func connectResult(err error) string {
	switch {
	case err == nil:
		return "connected"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "timed out"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "no route"
	}
	return err.Error()
}

// walk adds the packet's way through the rules of the node, as the serving dataplane reads
// them.
func (q Queries) walk(ctx context.Context, x *explanation, m track.Match) {
	ctx, cancel := context.WithTimeout(ctx, readBack)
	defer cancel()
	main := q.Serving()
	remote, err := main.Process()
	if err != nil {
		x.Untraced = err.Error()
		return
	}
	traced, err := remote.Trace(ctx, x.packet(m))
	switch {
	case errors.Is(err, wire.ErrUnsupported):
		x.Untraced = fmt.Sprintf("%s cannot trace packets", main.Name())
	case err != nil:
		x.Untraced = err.Error()
	default:
		x.addTrace(traced)
	}
}

// packet returns the packet that is asked about.
func (x *explanation) packet(m track.Match) sdk.Packet {
	from, _, _ := x.caller(m)
	return sdk.Packet{Protocol: protocols[x.Protocol], From: netip.AddrPortFrom(from.Addr, 0), To: x.To, Origin: from.From}
}

// addTrace adds a traced packet. The first way that differs from the verdict is listed first.
func (x *explanation) addTrace(t sdk.Traced) {
	x.Kernel = &admin.Traced{Ways: []admin.Way{}, Notes: t.Notes, Connections: t.Connections}
	for _, w := range t.Ways {
		way := admin.Way{Verdict: w.Verdict.String(), To: w.To.String(), Masquerade: w.Masquerade, Then: w.Then, Steps: w.Steps}
		differs := x.differs(w)
		if differs == "" || x.Kernel.Differs != "" {
			x.Kernel.Ways = append(x.Kernel.Ways, way)
			continue
		}
		x.Kernel.Differs, x.Kernel.Ways = differs, slices.Insert(x.Kernel.Ways, 0, way)
		if n := len(w.Steps); n > 0 && w.Verdict != sdk.Forward && x.Verdict != w.Verdict.String() {
			x.try("this rule stops it: %s; if Pointsman did not write that, remove it, or let the packet pass before it", w.Steps[n-1])
		}
	}
}

// differs describes how a way's end differs from the verdict, or returns "" if it does not
// differ or is not known.
func (x *explanation) differs(w sdk.Way) string {
	passes := w.Verdict == sdk.Forward && w.To == x.To
	isEndpoint := slices.ContainsFunc(x.Endpoints, func(s admin.Share) bool { return s.Address == w.To.String() })
	switch {
	case x.Verdict == admin.VerdictCannotTell, w.Then != "", w.Verdict == sdk.Forward && isEndpoint:
		return ""
	case w.Verdict.String() == x.Verdict && w.Verdict != sdk.Forward, passes && x.Verdict == admin.VerdictPass:
		return ""
	case passes:
		return "no rule translates it"
	case w.Verdict == sdk.Forward:
		return fmt.Sprintf("it is sent to %s, which is not one of its endpoints", w.To)
	}
	return fmt.Sprintf("the kernel's verdict is %s, not %s", w.Verdict, x.Verdict)
}
