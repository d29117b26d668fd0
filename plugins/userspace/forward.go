// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// A dataplane of rules lets replies through on a node that forwards nothing by itself. A
// relay forwards nothing, and so does not give that leave: who means to change to it is
// told of what would be lost.

// errForward is what a node would lose.
const errForward = "the policy of FORWARD is DROP, and nothing but KUBE-FORWARD lets replies through, which would go: " +
	"pods may lose what they reach outside the Services; try: iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"

// lookBefore is for the time before we serve: it has Report tell of what a change to us
// would end. Where there is no such tool no such rule was made by it.
func (d *Dataplane) lookBefore(ctx context.Context) {
	why := ""
	if slices.ContainsFunc(d.tools(ctx), func(t iptables.Tool) bool { return forwardsByLeave(ctx, t) }) {
		why = errForward
	}
	d.ends(why)
}

func (d *Dataplane) ends(why string) { d.status.impact.Store(&why) }

// tools are those that our rules are written with; where none are, all that may have some.
func (d *Dataplane) tools(ctx context.Context) (all []iptables.Tool) {
	if d.way != nil {
		for _, s := range d.way.rules.sides {
			all = append(all, s.Tool)
		}
		return all
	}
	for _, family := range families {
		for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
			if !iptables.InUse(family, backend) {
				continue
			}
			if t, err := iptables.Open(ctx, family, backend); err == nil {
				all = append(all, t)
			}
		}
	}
	return all
}

// forwardsByLeave reports whether FORWARD drops replies but for KUBE-FORWARD.
func forwardsByLeave(ctx context.Context, t iptables.Tool) bool {
	forward := iptables.ID{Table: "filter", Chain: "FORWARD"}
	if policy, err := t.Policy(ctx, forward); err != nil || policy != "DROP" {
		return false
	}
	rules, _, err := t.List(ctx, forward)
	return err == nil && onlyByLeave(rules)
}

// onlyByLeave reports whether of these rules only that of KUBE-FORWARD accepts replies.
func onlyByLeave(rules []iptables.Rule) bool {
	byLeave := false
	for _, r := range rules {
		text := string(r)
		switch {
		case strings.HasSuffix(text, "-j KUBE-FORWARD"):
			byLeave = true
		case strings.HasSuffix(text, "-j ACCEPT") && strings.Contains(text, "ESTABLISHED"), text == "-j ACCEPT":
			return false
		}
	}
	return byLeave
}
