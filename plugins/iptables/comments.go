// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"regexp"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// The rules of a Service's own chains, and the entries of its ClusterIPs, have kube-proxy's
// comments on small nodes. Every rule has then room for one in the kernel, so on large ones
// only those rules have a comment that are read back by it.

// What commentsAuto takes for a small node, and for a small Service. Comments come back only
// well below the limit, so that a Service that comes and goes does not change the form.
const (
	fewServices     = 1000
	fewServicesBack = 900
	fewEndpoints    = 1000
)

// The values of the option comments.
const (
	commentsAuto   = "auto"
	commentsAlways = "always"
	commentsNever  = "never"
)

// Size says how many Services there are, and with that whether rules written from now on
// have comments.
func (f *family) Size(services int) {
	if f.options.Comments == commentsAuto {
		f.comments = services <= fewServicesBack || f.comments && services <= fewServices
	}
}

// commented reports whether the rules of svc are to have comments.
func (f *family) commented(svc sdk.Service) bool {
	return f.comments && (f.options.Comments != commentsAuto || max(len(svc.Cluster), len(svc.Local)) <= fewEndpoints)
}

// comment puts text on a rule, where iptables-save would print it.
func comment(r iptables.Rule, text string) iptables.Rule {
	before, after := r, iptables.Rule("")
	for _, option := range []string{"-m ", "-j "} {
		if i := strings.Index(" "+string(r), " "+option); i >= 0 && i < len(before) {
			before, after = r[:i], r[i:]
		}
	}
	return iptables.Words(strings.TrimSpace(string(before)), "-m comment --comment", iptables.Text(text), after)
}

// named puts the name of a Service on those of its rules that have no comment.
func named(svc sdk.Service, rules []iptables.Rule) {
	for i, rule := range rules {
		if rule.Comment() == "" {
			rules[i] = comment(rule, iptables.Label(svc.Name))
		}
	}
}

// leadsTo is the comment of a rule that leads to ep.
func (r *render) leadsTo(svc sdk.Service, ep sdk.Endpoint) iptables.Rule {
	if !r.comments {
		return ""
	}
	return iptables.Words("-m comment --comment", iptables.Text(iptables.Label(svc.Name)+" -> "+ep.Addr.String()))
}

// optional is a comment that a rule may have or lack: no more than a Service's name, but for
// what kube-proxy has behind it. A name with other characters is no Kubernetes name.
var optional = regexp.MustCompile(`-m comment --comment "[^" ]+( cluster IP| -> [^" ]+)?" `)

// sameRules reports whether a chain that has one text, and should have another, lacks nothing
// but comments, or has some more. A list must have its Service's name all the same.
func sameRules(id iptables.ID, have, want string) bool {
	first, _, _ := strings.Cut(have, "\n")
	if isList(id) && iptables.Rule(first).Comment() == "" {
		return false
	}
	return optional.ReplaceAllLiteralString(have, "") == optional.ReplaceAllLiteralString(want, "")
}
