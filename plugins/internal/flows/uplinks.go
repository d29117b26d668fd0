// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// An Uplink is an interface of a default route.
type Uplink struct {
	Name   string
	OnLink []netip.Prefix // destinations on its link, which need no gateway
}

// Equal reports whether both have the same name and prefixes.
func (u Uplink) Equal(o Uplink) bool { return u.Name == o.Name && slices.Equal(u.OnLink, o.OnLink) }

// Looped returns rules that jump to a chain with packets that would leave by the uplink on which they arrived,
// except for packets to neighbours there.
func Looped(uplinks []Uplink, chain string) (rules []iptables.Rule) {
	for _, up := range uplinks {
		through := iptables.Words("-i", iptables.Interface(up.Name), "-o", iptables.Interface(up.Name))
		for _, p := range up.OnLink {
			rules = append(rules, iptables.Words("-d", p, through, "-j RETURN"))
		}
		rules = append(rules, iptables.Words(through, "-j", chain))
	}
	return rules
}
