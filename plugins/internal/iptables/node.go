// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// This file is what dataplanes say of a node, its pods and its Services in the same words.

// From are the words for packets that source sends; iptables has none for "anywhere".
func From(source netip.Prefix) Rule { return unlessAll("-s", source) }

// To are the words for packets that are sent into p.
func To(p netip.Prefix) Rule { return unlessAll("-d", p) }

func unlessAll(option string, p netip.Prefix) Rule {
	if p.Bits() == 0 {
		return ""
	}
	return Words(option, p)
}

// FromPods are the words for packets that pods of this node send, one for each way to be one.
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

// Forwarded accepts what a FORWARD policy of DROP would stop: what has the mark for
// masquerading, and what belongs to a connection. It has no comments: a kernel may lack xt_comment.
func Forwarded(n sdk.Node) []Rule {
	return []Rule{
		Words("-m mark --mark", OneBit(n.MasqueradeBit), "-j ACCEPT"),
		"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
	}
}

// OneBit is a mark of one bit, by its number, as value and mask.
func OneBit(number uint8) string {
	bit := uint32(1) << (number & 31)
	return fmt.Sprintf("%#x/%#x", bit, bit)
}

// Refused answers at once that no endpoint serves.
func Refused(f sdk.Family) Rule {
	if f == sdk.IPv6 {
		return "-j REJECT --reject-with icmp6-port-unreachable"
	}
	return "-j REJECT --reject-with icmp-port-unreachable"
}

// Loopback are the addresses of family by which a node calls itself.
func Loopback(family sdk.Family) netip.Prefix {
	if family == sdk.IPv6 {
		return netip.MustParsePrefix("::1/128")
	}
	return netip.MustParsePrefix("127.0.0.0/8")
}

// Unspecified is the address of family that stands for all.
func Unspecified(family sdk.Family) netip.Addr {
	if family == sdk.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// Label is how a comment names a Service: "ns1/web:http". The protocol and the family are
// told by what it stands beside.
func Label(n sdk.Name) string {
	if n.Port == "" {
		return n.Namespace + "/" + n.Service
	}
	return n.Namespace + "/" + n.Service + ":" + n.Port
}

// Labelled is the way back from Label. Other people's comments name no Service.
func Labelled(label string) sdk.Name {
	label, port, _ := strings.Cut(label, ":")
	namespace, service, _ := strings.Cut(label, "/")
	return sdk.Name{Namespace: namespace, Service: service, Port: port}
}

// LabelFrontend is how a comment names a frontend: "ns1/web:http node-port local".
func LabelFrontend(n sdk.Name, kind sdk.Kind, policy sdk.Policy) string {
	text := Label(n) + " " + kind.String()
	if policy == sdk.Local {
		text += " local"
	}
	return text
}

// LabelledFrontend is the way back from LabelFrontend: whose comment text is, and on which kind of
// frontend. More words may follow. Other people's comments are none of that.
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

// ProtocolCalled is the protocol that rules and sets call name; zero: one that we do not serve.
func ProtocolCalled(name string) sdk.Protocol {
	for _, p := range []sdk.Protocol{sdk.TCP, sdk.UDP, sdk.SCTP} {
		if p.String() == name {
			return p
		}
	}
	return 0
}
