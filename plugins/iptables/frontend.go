// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// frontend catches the packets sent to f. In nat it sends on those that somebody
// may answer. In filter it turns away what nat did not send on: REJECT where
// nobody serves at all, DROP where nobody near does or the source is not allowed.
func (r *render) frontend(svc sdk.Service, f sdk.Frontend) {
	if answered(svc, f) {
		r.catch(svc, f, servedTree(f), wayIn(svc, f), "-j", r.entrance(svc, f))
	}
	switch {
	case len(f.Sources) > 0 && len(svc.Cluster) == 0:
		r.denySources(svc, f)
	case len(f.Sources) > 0:
		r.catch(svc, f, unservedTree(f), why(svc, f, "has source ranges"), "-j", denied)
	case len(svc.Cluster) == 0:
		r.catch(svc, f, unservedTree(f), why(svc, f, "has no endpoints"), iptables.Refused(svc.Name.Family))
	case len(svc.Endpoints(f.Policy)) == 0:
		r.catch(svc, f, unservedTree(f), why(svc, f, "has no local endpoints"), "-j DROP")
	}
}

// answered reports whether any caller of f is sent on.
func answered(svc sdk.Service, f sdk.Frontend) bool {
	if f.External() {
		return len(svc.Cluster) > 0 // pods and the node use all endpoints, whatever the policy
	}
	return len(svc.Cluster) > 0 && len(svc.Endpoints(f.Policy)) > 0
}

// catch adds an entry for f to a tree.
func (r *render) catch(svc sdk.Service, f sdk.Frontend, in int, words ...any) {
	k := tree.Key{Addr: f.Addr.Addr(), Protocol: svc.Name.Protocol, Port: f.Addr.Port()}
	r.Entries = append(r.Entries, ruleset.Entry{In: in, Entry: tree.Entry{Key: k, Rule: iptables.Words(words...), Behind: behind(f), Owner: svc.Name}})
}

// behind is how many chains lie behind an entry of f, at most: the Service's own
// and two more, the way in from outside, and the sources.
func behind(f sdk.Frontend) int {
	n := 3
	if f.External() {
		n++
	}
	if len(f.Sources) > 0 {
		n++
	}
	return n
}

// wayIn names an external frontend in the rule that leads on. A ClusterIP's needs no
// name: the first rule of its chain has it, and comments cost time in legacy.
func wayIn(svc sdk.Service, f sdk.Frontend) iptables.Rule {
	if !f.External() {
		return ""
	}
	return iptables.Words("-m comment --comment", iptables.Text(label(svc.Name, f)))
}

// why names the frontend in a rule that turns callers away: it is where an operator
// looks.
func why(svc sdk.Service, f sdk.Frontend, what string) iptables.Rule {
	return iptables.Words("-m comment --comment", iptables.Text(label(svc.Name, f)+" "+what))
}

// entrance is the chain that the callers of f go to first.
func (r *render) entrance(svc sdk.Service, f sdk.Frontend) string {
	if len(f.Sources) == 0 {
		return target(svc, f)
	}
	id := nat(sourcesChain(svc, f))
	var rules []iptables.Rule
	for _, source := range f.Sources {
		rules = append(rules, iptables.Words(iptables.From(source), "-j", target(svc, f)))
	}
	r.chain(id, rules...)
	return id.Chain
}

// denySources turns away the callers of an f that nobody serves: who might have
// called is told so, and who might not hears nothing.
func (r *render) denySources(svc sdk.Service, f sdk.Frontend) {
	id := filter(sourcesChain(svc, f))
	var rules []iptables.Rule
	for _, source := range f.Sources {
		rules = append(rules, iptables.Words(iptables.From(source), iptables.Refused(svc.Name.Family)))
	}
	r.chain(id, append(rules, iptables.Words("-j", denied))...)
	r.catch(svc, f, unservedTree(f), why(svc, f, "has no endpoints"), "-j", id.Chain)
}

// target is the chain for callers of f who are allowed.
func target(svc sdk.Service, f sdk.Frontend) string {
	switch {
	case f.External():
		return entryChain(svc, f.Policy)
	case f.Policy == sdk.Local:
		return localChain(svc.Name)
	}
	return clusterChain(svc.Name)
}
