// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
)

// ourChains and ourStems have the chain names of this mode, which include kube-proxy's because we take its
// place. A chain whose name only begins with KUBE (KUBE-ROUTER-X) is foreign. KUBE-FIREWALL and KUBE-MARK-DROP
// are not listed because the kubelet uses them too, nor are the chains that all dataplanes share (package
// masquerade).
var (
	ourChains = []string{services, nodePorts, externalServices, denied, noLocalEndpoint, noEndpoint, foreignPort, forward, localnetGuard, looped, markNotPod, canary}
	ourStems  = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-", "KUBE-VIP-", "KUBE-NP-", "KUBE-HC-", "KUBE-LP-"}
)

// canary is the chain by which kube-proxy detects that its rules were flushed.
const canary = "KUBE-PROXY-CANARY"

func isOurs(id iptables.ID) bool {
	return isFixed(id) || slices.ContainsFunc(ourStems, func(stem string) bool { return strings.HasPrefix(id.Chain, stem) })
}

// isFixed reports whether a chain is one of those that exist independently of Services.
func isFixed(id iptables.ID) bool { return slices.Contains(ourChains, id.Chain) }

// shownRole returns the role that jumps to our chains imply.
func shownRole(jumps []iptables.Jump) sdk.Role {
	role := sdk.Standby
	for _, j := range jumps {
		switch {
		case j.At.Table == "nat" && j.Rule.Target() == services:
			return sdk.Active
		case j.Rule.Target() == forward:
			role = sdk.Draining
		}
	}
	return role
}

// owner returns the Service to which an entry belongs. Its name is in the comment of the entry, or in the
// comment of the first rule of the chain that the entry jumps to.
func owner(family sdk.Family, e rules.Entry, textOf func(iptables.ID) string) (name sdk.Name, ok bool) {
	text := e.Rule.Comment()
	if text == "" {
		first, _, _ := strings.Cut(textOf(nat(e.Rule.Target())), "\n")
		text = iptables.Rule(first).Comment()
	}
	label, _, _ := strings.Cut(text, " ")
	name = iptables.Labelled(label)
	name.Protocol, name.Family = e.Key.Protocol, family
	return name, name.Service != ""
}
