// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A target is a frontend of a port of a Service.
type target struct {
	thing   thing
	network string // tcp4, udp6, …
	way     string // cluster-ip, node-port, …
	addr    netip.AddrPort
	ends    int // the most endpoints that may answer
	size    int // of a datagram; 0: a short one
}

func (t target) String() string {
	text := fmt.Sprintf("%s %s %s/%s", t.thing.service.Name, t.way, t.addr, t.network)
	if t.size > 0 {
		text += fmt.Sprintf(" by %d bytes", t.size)
	}
	return text
}

func (t target) family() int {
	if t.addr.Addr().Is6() {
		return 1
	}
	return 0
}

// targets returns all frontends of a Service.
func (t thing) targets() []target {
	var list []target
	add := func(way, ip string, port int32, p corev1.ServicePort) {
		addr, err := netip.ParseAddr(ip)
		if err != nil || port == 0 {
			return // a host's name, or "None"
		}
		network := strings.ToLower(string(p.Protocol)) + "4"
		if addr.Is6() {
			network = strings.ToLower(string(p.Protocol)) + "6"
		}
		list = append(list, target{t, network, way, netip.AddrPortFrom(addr, uint16(port)), len(t.ends), 0})
	}
	spec := t.service.Spec
	for _, p := range spec.Ports {
		for _, ip := range spec.ClusterIPs {
			add("cluster-ip", ip, p.Port, p)
		}
		for _, ip := range spec.ExternalIPs {
			add("external-ip", ip, p.Port, p)
		}
		for _, in := range t.service.Status.LoadBalancer.Ingress {
			add("load-balancer", in.IP, p.Port, p)
		}
		for i := range secondAddrs {
			add("node-port", at("node").addrs[i].String(), p.NodePort, p)
			add("second-node-port", secondAddrs[i].String(), p.NodePort, p)
			add("loopback-node-port", loopbackCaller.addrs[i].String(), p.NodePort, p)
		}
	}
	return list
}

// A question is a call from a caller to a target.
type question struct {
	from caller
	to   target
	flow bool // asked on a socket that was served before
}

func (q question) String() string { return q.from.name + " ▶ " + q.to.String() }

func questions(things []thing) []question { return calls(things, callers...) }

// longDatagrams returns the questions by UDP, with a request and an answer of more than one packet.
func longDatagrams(all []question) []question {
	var long []question
	for _, q := range all {
		if strings.HasPrefix(q.to.network, "udp") {
			q.to.size = 4000
			long = append(long, q)
		}
	}
	return long
}

// calls returns the calls from callers to all targets of things.
func calls(things []thing, callers ...caller) []question {
	var all []question
	for _, t := range things {
		for _, to := range t.targets() {
			if to.way == "loopback-node-port" {
				all = append(all, question{from: loopbackCaller, to: to})
				continue
			}
			for _, from := range callers {
				all = append(all, question{from: from, to: to})
			}
		}
	}
	return all
}

// An answer is all results that a call may have, sorted.
type answer []string

func (a answer) String() string { return strings.Join(a, ", ") }

// ask calls until no new result comes.
func (q question) ask(ctx context.Context, w *world, thorough int, wait time.Duration) answer {
	var heard answer
	for misses := 0; misses < thorough*q.to.ends+1; misses++ {
		got := w.call(ctx, q.from, q.to, wait)
		if !slices.Contains(heard, got) {
			heard = append(heard, got)
			misses = 0
		}
		if got == dropped && misses < thorough/6 {
			continue // the answer may have been late
		}
		if got == refused || got == dropped && !q.endpoint() || got == passed {
			break // one rule rejects all calls, but for an endpoint's call to itself
		}
		if len(heard) >= q.to.ends {
			break
		}
	}
	sort.Strings(heard)
	return heard
}

// askAll asks all questions in one world.
func askAll(ctx context.Context, w *world, list []question, thorough int, wait time.Duration) []answer {
	answers := make([]answer, len(list))
	next := make(chan int)
	var asking sync.WaitGroup
	for range 24 {
		asking.Go(func() {
			for i := range next {
				answers[i] = list[i].ask(ctx, w, thorough, wait)
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	asking.Wait()
	return answers
}

// alike reports whether two answers mean the same for a proxy of a kind. A caller that stays with one endpoint may stay
// with another one in another world; a relay calls in place of its callers.
func alike(k kind, q question, theirs, ours answer) bool {
	if q.sticky() && len(theirs) == 1 && len(ours) == 1 && served(theirs) && served(ours) {
		return true
	}
	if k.mode == "userspace" {
		theirs, ours = theirs.unseen(), ours.unseen()
	}
	if q.to.addr.Addr().Is4() {
		theirs, ours = theirs.unheard(), ours.unheard()
	}
	return slices.Equal(theirs, ours)
}

// unseen removes the addresses that endpoints saw.
func (a answer) unseen() answer {
	var list answer
	for _, s := range a {
		s, _, _ = strings.Cut(s, " saw ")
		list = append(list, s)
	}
	sort.Strings(list)
	return slices.Compact(list)
}

// unheard replaces forwarded by dropped: with IPv4 the router outside does not always report that it has no route.
func (a answer) unheard() answer {
	list := slices.Clone(a)
	for i := range list {
		if list[i] == passed {
			list[i] = dropped
		}
	}
	sort.Strings(list)
	return slices.Compact(list)
}

func (q question) sticky() bool {
	return q.to.thing.service.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
}

// served reports whether an endpoint has answered.
func served(a answer) bool {
	return slices.ContainsFunc(a, func(s string) bool { return strings.Contains(s, " saw ") })
}
