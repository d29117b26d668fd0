// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// This file has the matches and comments by which all dataplanes describe the node, its pods and its Services.

// From returns the match on a source prefix, or "" for all addresses.
func From(source netip.Prefix) Rule { return unlessAll("-s", source) }

// To returns the match on a destination prefix, or "" for all addresses.
func To(p netip.Prefix) Rule { return unlessAll("-d", p) }

func unlessAll(option string, p netip.Prefix) Rule {
	if p.Bits() == 0 {
		return ""
	}
	return Words(option, p)
}

// FromPods returns the matches on packets from pods of this node, one for each way to recognize a pod.
func FromPods(pods sdk.Pods, family sdk.Family) []Rule {
	switch {
	case pods.Bridge != "":
		return []Rule{Words("-i", Interface(pods.Bridge))}
	case pods.InterfacePrefix != "":
		return []Rule{Words("-i", Interface(pods.InterfacePrefix+"+"))}
	}
	var rules []Rule
	for _, c := range pods.CIDRs {
		if sdk.FamilyOf(c.Addr()) == family {
			rules = append(rules, From(c))
		}
	}
	return rules
}

// Forwarded returns rules that accept what a FORWARD policy of DROP would stop: packets with the masquerade
// mark, and packets of established connections. They have no comments, because a kernel may lack xt_comment.
func Forwarded(n sdk.Node) []Rule {
	return []Rule{
		Words("-m mark --mark", OneBit(n.MasqueradeBit), "-j ACCEPT"),
		"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
	}
}

// OneBit returns the mark of one bit, given by its number, as value and mask.
func OneBit(number uint8) string {
	bit := uint32(1) << (number & 31)
	return fmt.Sprintf("%#x/%#x", bit, bit)
}

// Refused returns the REJECT target: clients learn at once that there is no endpoint.
func Refused(f sdk.Family) Rule {
	if f == sdk.IPv6 {
		return "-j REJECT --reject-with icmp6-port-unreachable"
	}
	return "-j REJECT --reject-with icmp-port-unreachable"
}

// Loopback returns the loopback addresses of family.
func Loopback(family sdk.Family) netip.Prefix {
	if family == sdk.IPv6 {
		return netip.MustParsePrefix("::1/128")
	}
	return netip.MustParsePrefix("127.0.0.0/8")
}

// Unspecified returns the unspecified address of family.
func Unspecified(family sdk.Family) netip.Addr {
	if family == sdk.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// Label returns the text by which a comment names a Service: "ns1/web:http". It has neither protocol nor
// family, which follow from the rule.
func Label(n sdk.Name) string {
	if n.Port == "" {
		return n.Namespace + "/" + n.Service
	}
	return n.Namespace + "/" + n.Service + ":" + n.Port
}

// Labelled is the inverse of Label. For other comments the result has no Service.
func Labelled(label string) sdk.Name {
	label, port, _ := strings.Cut(label, ":")
	namespace, service, _ := strings.Cut(label, "/")
	return sdk.Name{Namespace: namespace, Service: service, Port: port}
}

// LabelFrontend returns the text by which a comment names a frontend: "ns1/web:http node-port local".
func LabelFrontend(n sdk.Name, kind sdk.Kind, policy sdk.Policy) string {
	text := Label(n) + " " + kind.String()
	if policy == sdk.Local {
		text += " local"
	}
	return text
}

// LabelledFrontend is the inverse of LabelFrontend. It ignores further words, and is not ok for other comments.
// f has only the kind and the policy.
func LabelledFrontend(text string) (name sdk.Name, f sdk.Frontend, ok bool) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return name, f, false
	}
	for _, kind := range []sdk.Kind{sdk.ClusterIP, sdk.NodePort, sdk.ExternalIP, sdk.LoadBalancer} {
		if words[1] == kind.String() {
			f.Kind = kind
		}
	}
	f.Policy = sdk.Cluster
	if len(words) > 2 && words[2] == "local" {
		f.Policy = sdk.Local
	}
	name = Labelled(words[0])
	return name, f, f.Kind != 0 && name.Service != ""
}

// ProtocolCalled returns the protocol that rules and sets call name, or zero if it is none that Services have.
func ProtocolCalled(name string) sdk.Protocol {
	for _, p := range []sdk.Protocol{sdk.TCP, sdk.UDP, sdk.SCTP} {
		if p.String() == name {
			return p
		}
	}
	return 0
}
