// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// policies is why it cannot be told which routes packets take: a rule of policy routing chooses them by
// what the question for a route does not say. Rules by address, mark and interface are in the answer.
func policies(family sdk.Family) error { return unclear(family, unasked) }

// bySource is why it cannot be told where a packet is routed that was not asked about with the address it
// is from.
func bySource(family sdk.Family) error {
	return unclear(family, func(r netlink.Rule) string {
		if r.Src == nil {
			return ""
		}
		return "source"
	})
}

// unclear names a rule of policy routing that chooses by what is not asked; nil: there is none.
func unclear(family sdk.Family, unasked func(netlink.Rule) string) error {
	rules, err := netlink.RuleList(map[sdk.Family]int{sdk.IPv4: unix.AF_INET, sdk.IPv6: unix.AF_INET6}[family])
	if err != nil {
		return fmt.Errorf("list the rules of policy routing: %w", err)
	}
	for _, r := range rules {
		if by := unasked(r); by != "" {
			return unknownf("policy routing: %s chooses routes by %s (ip rule show)", strings.TrimSpace(r.String()), by)
		}
	}
	return nil
}

// unasked names by what a rule chooses that a question for a route does not say; empty: by nothing.
func unasked(r netlink.Rule) string {
	var by []string
	for what, does := range map[string]bool{
		"port": r.Dport != nil || r.Sport != nil, "protocol": r.IPProto != 0, "user": r.UIDRange != nil,
		"TOS": r.Tos != 0, "tunnel": r.TunID != 0,
	} {
		if does {
			by = append(by, what)
		}
	}
	slices.Sort(by)
	return strings.Join(by, " and ")
}
