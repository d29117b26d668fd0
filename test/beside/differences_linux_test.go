// SPDX-License-Identifier: Apache-2.0

package beside

import (
	_ "embed"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

//go:embed testdata/differences.txt
var table string

// A difference is a line of the table: where, and why, one of our proxies behaves differently from kube-proxy.
type difference struct {
	line         int
	modes        []string // or labels of kinds
	where        []func(*proxy, question) bool
	theirs, ours func(answer) bool
	why          string
}

// callWords has the words of the table for calls.
var callWords = map[string]func(*proxy, question) bool{
	"from the node":              func(_ *proxy, q question) bool { return q.from.place == "node" },
	"from loopback":              func(_ *proxy, q question) bool { return q.from.name == loopbackCaller.name },
	"from a pod elsewhere":       func(_ *proxy, q question) bool { return strings.HasPrefix(q.from.place, "far") },
	"from an endpoint elsewhere": func(_ *proxy, q question) bool { return q.endpoint() && at(q.from.place).node == there },
	"to a cluster IP":            func(_ *proxy, q question) bool { return q.to.way == "cluster-ip" },
	"to an external address":     func(_ *proxy, q question) bool { return q.to.way != "cluster-ip" },
	"to a load balancer":         func(_ *proxy, q question) bool { return q.to.way == "load-balancer" },
	"to a node port":             func(_ *proxy, q question) bool { return strings.HasSuffix(q.to.way, "node-port") },
	"to loopback":                func(_ *proxy, q question) bool { return q.to.addr.Addr().IsLoopback() },
	"not to loopback":            func(_ *proxy, q question) bool { return !q.to.addr.Addr().IsLoopback() },
	"by UDP":                     func(_ *proxy, q question) bool { return strings.HasPrefix(q.to.network, "udp") },
	"no endpoint":                func(_ *proxy, q question) bool { return q.to.thing.usableEndpoints() == 0 },
	"an endpoint":                func(_ *proxy, q question) bool { return q.to.thing.usableEndpoints() > 0 },
	"source ranges":              func(_ *proxy, q question) bool { return q.hasSourceRanges() },
	"source ranges of the other family": func(_ *proxy, q question) bool {
		return len(q.to.thing.service.Spec.LoadBalancerSourceRanges) > 0 && !q.hasSourceRanges()
	},
	"outside nodePortAddresses": func(_ *proxy, q question) bool { return q.to.addr.Addr() == netip.IPv6Loopback() },
	"Local policy": func(_ *proxy, q question) bool {
		return q.to.thing.service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	},
	"a flow that had begun": func(_ *proxy, q question) bool { return q.flow },
}

// results has the words of the table for results.
var results = map[string]func(answer) bool{
	"any":          func(answer) bool { return true },
	"served":       served,
	"served here":  answer.allLocal,
	"not served":   func(a answer) bool { return !served(a) },
	"refused":      func(a answer) bool { return only(a, refused) },
	"dropped":      func(a answer) bool { return only(a, dropped) },
	"lost":         func(a answer) bool { return only(a.unheard(), dropped) },
	"some dropped": func(a answer) bool { return slices.Contains(a, dropped) },
	"none dropped": func(a answer) bool { return !slices.Contains(a, dropped) },
}

var differences = func() (all []difference) {
	for i, line := range strings.Split(table, "\n") {
		fields := strings.Split(line, "|")
		if len(fields) != 5 || strings.HasPrefix(line, "Pointsman ") {
			continue
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		d := difference{line: i + 1, modes: strings.Split(fields[0], ", "), theirs: results[fields[2]], ours: results[fields[3]], why: fields[4]}
		for word := range strings.SplitSeq(fields[1], ", ") {
			if word != "" {
				d.where = append(d.where, callWords[word])
			}
		}
		all = append(all, d)
	}
	return all
}()

// TestDifferences parses all lines of the table.
func TestDifferences(t *testing.T) {
	if lines := strings.Count(table, "|") / 4; lines != len(differences)+1 {
		t.Errorf("of %d lines there are %d differences", lines, len(differences))
	}
	for _, d := range differences {
		if d.theirs == nil || d.ours == nil || slices.ContainsFunc(d.where, func(f func(*proxy, question) bool) bool { return f == nil }) {
			t.Errorf("differences.txt:%d has words that no function stands for", d.line)
		}
	}
}

func (d difference) of(k kind) bool {
	return k.ours && slices.Contains(d.modes, k.mode) || slices.Contains(d.modes, k.label)
}

// explained returns the difference that explains why ours differs, or nil.
func explained(p *proxy, q question, theirs, ours answer) *difference {
	for i, d := range differences {
		wrong := func(so func(*proxy, question) bool) bool { return !so(p, q) }
		if d.of(p.kind) && !slices.ContainsFunc(d.where, wrong) && d.theirs(theirs) && d.ours(ours) {
			return &differences[i]
		}
	}
	return nil
}

// allShown checks that each difference was seen.
func (c *contest) allShown(t *testing.T) {
	for _, d := range differences {
		if !c.shown[d.line] && slices.ContainsFunc(c.proxies, func(p *proxy) bool { return d.of(p.kind) }) {
			t.Errorf("differences.txt:%d: no call shows that %s", d.line, d.why)
		}
	}
}

// endpoint reports whether the caller is one of the Service's endpoints.
func (q question) endpoint() bool {
	return slices.ContainsFunc(q.to.thing.ends, func(e end) bool { return e.place == q.from.place })
}

// allLocal reports whether all answers are of endpoints on this node.
func (a answer) allLocal() bool {
	return len(a) > 0 && !slices.ContainsFunc(a, func(one string) bool {
		addr, err := netip.ParseAddrPort(strings.Split(one, " saw ")[0])
		return err != nil || !slices.ContainsFunc(places, func(p place) bool { return p.node == here && slices.Contains(p.addrs[:], addr.Addr()) })
	})
}

func only(a answer, one string) bool { return len(a) == 1 && a[0] == one }

// hasSourceRanges reports whether the Service has source ranges of the target's family.
func (q question) hasSourceRanges() bool {
	return slices.ContainsFunc(q.to.thing.service.Spec.LoadBalancerSourceRanges, func(s string) bool {
		return strings.Contains(s, ":") == q.to.addr.Addr().Is6()
	})
}

// usableEndpoints returns the number of endpoints that can serve.
func (t thing) usableEndpoints() int {
	n := 0
	for _, e := range t.ends {
		if conditionValue(e.state.Ready, true) || conditionValue(e.state.Serving, true) && conditionValue(e.state.Terminating, false) {
			n++
		}
	}
	return n
}

// conditionValue returns a condition's value, or its meaning if it is not given.
func conditionValue(condition *bool, ifNil bool) bool {
	if condition == nil {
		return ifNil
	}
	return *condition
}
