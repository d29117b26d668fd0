// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
)

// acceptsReplies are the chains by which modes with rules accept replies on a node that otherwise forwards nothing. A relay
// forwards nothing, so it has no such chain.
var acceptsReplies = []string{"KUBE-FORWARD", masquerade.Forward}

// lostForward is the report's SwapImpact if a swap to this mode removes what accepts replies.
const lostForward = "the policy of FORWARD is DROP, and nothing but KUBE-FORWARD or " + masquerade.Forward + " lets replies through, which would go: " +
	"pods may lose what they reach outside the Services; try: iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"

// findSwapImpact finds out what a swap to this mode would interrupt. Rules of a tool that is missing were not made by it.
func (p *plugin) findSwapImpact(ctx context.Context) {
	p.swapImpact.Store("")
	for _, of := range families {
		if slices.ContainsFunc(iptables.ToolsInUse(ctx, of), func(t iptables.Tool) bool { return needsForwardChains(ctx, t) }) {
			p.swapImpact.Store(lostForward)
		}
	}
}

// needsForwardChains reports whether FORWARD drops replies that only the chains in acceptsReplies accept.
func needsForwardChains(ctx context.Context, t iptables.Tool) bool {
	forward := iptables.ID{Table: "filter", Chain: "FORWARD"}
	if found, err := t.SaveIf(ctx, func(id iptables.ID) bool { return slices.Contains(acceptsReplies, id.Chain) }, forward.Table); err != nil || len(found) == 0 {
		return false // Policy would create the table
	}
	if policy, err := t.Policy(ctx, forward); err != nil || policy != "DROP" {
		return false
	}
	rules, _, err := t.List(ctx, forward)
	return err == nil && onlyOursAcceptReplies(rules)
}

// onlyOursAcceptReplies reports whether of these rules only those that lead to acceptsReplies accept replies.
func onlyOursAcceptReplies(rules []iptables.Rule) (ours bool) {
	for _, r := range rules {
		text := string(r)
		switch {
		case slices.Contains(acceptsReplies, r.Target()):
			ours = true
		case strings.HasSuffix(text, "-j ACCEPT") && strings.Contains(text, "ESTABLISHED"), text == "-j ACCEPT":
			return false
		}
	}
	return ours
}
