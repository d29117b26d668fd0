// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"regexp"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
)

// On a node with at most fewServices Services, the rules of a Service with at most fewEndpoints endpoints have
// kube-proxy's comments. Otherwise only the rules whose comment adoption reads have one: a comment costs 256
// bytes of kernel memory per rule, and the legacy backend copies the whole table with each change. A rule that
// is already in the kernel is not rewritten only to change its comment: see sameRules.
const (
	fewServices  = 1000
	fewEndpoints = 1000
)

// hasComments reports whether the rules of svc get comments.
func (f *family) hasComments(svc sdk.Service) bool {
	return f.many() <= fewServices && max(len(svc.Cluster), len(svc.Local)) <= fewEndpoints
}

// addComment adds a comment to a rule, at the place where iptables-save prints it.
func addComment(r iptables.Rule, text string) iptables.Rule {
	before, after := r, iptables.Rule("")
	for _, option := range []string{"-m ", "-j "} {
		if i := strings.Index(" "+string(r), " "+option); i >= 0 && i < len(before) {
			before, after = r[:i], r[i:]
		}
	}
	return iptables.Words(strings.TrimSpace(string(before)), "-m comment --comment", iptables.Text(text), after)
}

// addNames adds the Service's name as a comment to each rule that has no comment.
func addNames(svc sdk.Service, rules []iptables.Rule) {
	for i, rule := range rules {
		if rule.Comment() == "" {
			rules[i] = addComment(rule, iptables.Label(svc.Name))
		}
	}
}

// endpointComment returns the comment of a rule that sends packets to ep.
func (r *render) endpointComment(svc sdk.Service, ep sdk.Endpoint) iptables.Rule {
	if !r.comments {
		return ""
	}
	return iptables.Words("-m comment --comment", iptables.Text(iptables.Label(svc.Name)+" -> "+ep.Addr.String()))
}

// optionalComment matches a comment whose presence makes no difference: a Service's name, alone or followed by
// kube-proxy's text for a ClusterIP or an endpoint.
var optionalComment = regexp.MustCompile(`-m comment --comment "[^" ]+( cluster IP| -> [^" ]+)?" `)

// sameRules reports whether two texts of a chain differ in optional comments only. The first
// rule of a list must have its Service's name, because the list is read back by that name.
func sameRules(id iptables.ID, have, want string) bool {
	first, _, _ := strings.Cut(have, "\n")
	if isList(id) && iptables.Rule(first).Comment() == "" {
		return false
	}
	return optionalComment.ReplaceAllLiteralString(have, "") == optionalComment.ReplaceAllLiteralString(want, "")
}

// keepComments returns p with the text that the kernel has wherever the two differ in optional comments only.
func keepComments(p, had rules.Piece) rules.Piece {
	for i, c := range p.Chains {
		if text, ok := had.Chain(c.ID); ok && text != c.Text && sameRules(c.ID, text, c.Text) {
			p.Chains[i].Text = text
		}
	}
	for i, e := range p.Entries {
		if rule, ok := had.Entry(e.In, e.Key); ok && rule != e.Rule && sameRules(iptables.ID{}, string(rule), string(e.Rule)) {
			p.Entries[i].Rule = rule
		}
	}
	return p
}
