// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// A dataplane of rules lets replies through on a node that forwards nothing by itself. A
// relay forwards nothing, and so does not give that leave: its report says what a
// change to it would end.

// errForward is what a node would lose.
const errForward = "the policy of FORWARD is DROP, and nothing but KUBE-FORWARD or " + masquerade.Forward + " lets replies through, which would go: " +
	"pods may lose what they reach outside the Services; try: iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"

// SetRole changes what this process catches. In Standby it is found out what a change of
// mode to this one would end.
func (p *plugin) SetRole(ctx context.Context, role sdk.Role) error {
	if err := p.Dataplane.SetRole(ctx, role); err != nil {
		return err
	}
	if p.impact.Store(""); role != sdk.Standby {
		return nil
	}
	return p.Do(ctx, func(map[sdk.Name]sdk.Service) error { p.foresee(ctx); return nil })
}

// foresee finds out what a change of mode to this one would end. Without a tool no rule of
// that kind was made by it.
func (p *plugin) foresee(ctx context.Context) {
	p.impact.Store("")
	for _, of := range families {
		if slices.ContainsFunc(iptables.ToolsInUse(ctx, of), func(t iptables.Tool) bool { return forwardsByLeave(ctx, t) }) {
			p.impact.Store(errForward)
		}
	}
}

// forwardsByLeave reports whether FORWARD drops replies but for a chain of ours.
func forwardsByLeave(ctx context.Context, t iptables.Tool) bool {
	forward := iptables.ID{Table: "filter", Chain: "FORWARD"}
	leave := func(id iptables.ID) bool { return slices.Contains(letThrough, id.Chain) }
	if found, err := t.SaveIf(ctx, leave, forward.Table); err != nil || len(found) == 0 {
		return false // and no table is made by asking for the policy
	}
	if policy, err := t.Policy(ctx, forward); err != nil || policy != "DROP" {
		return false
	}
	rules, _, err := t.List(ctx, forward)
	return err == nil && onlyByLeave(rules)
}

// letThrough are the chains of ours that accept replies.
var letThrough = []string{"KUBE-FORWARD", masquerade.Forward}

// onlyByLeave reports whether of these rules only those that lead to chains of ours accept replies.
func onlyByLeave(rules []iptables.Rule) bool {
	byLeave := false
	for _, r := range rules {
		text := string(r)
		switch {
		case slices.Contains(letThrough, r.Target()):
			byLeave = true
		case strings.HasSuffix(text, "-j ACCEPT") && strings.Contains(text, "ESTABLISHED"), text == "-j ACCEPT":
			return false
		}
	}
	return byLeave
}
