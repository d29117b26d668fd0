// SPDX-License-Identifier: Apache-2.0

// Package iptables serves Services with the kernel's packet filter. A packet's way
// through what it programs:
//
//	nat PREROUTING, OUTPUT ─▶ KUBE-SERVICES ─▶ tree by address, protocol, port ─┐
//	                                └─ to the node ─▶ KUBE-NODEPORTS ─ tree ────┤
//	        ┌───────────────────────────────────────────────────────────────────┘
//	        ├─▶ KUBE-FW-   only these sources ─┐
//	        ├─▶ KUBE-EXT-  from outside ◀──────┘ marks, or keeps the caller's address
//	        │      ├─▶ KUBE-SVL-  endpoints of this node ─┐
//	        └──────┴─▶ KUBE-SVC-  all endpoints ──────────┴─▶ DNAT
//	                                 └─▶ KUBE-SEP-  one that may call itself, or sticks
//
//	filter INPUT, FORWARD, OUTPUT ─▶ KUBE-SERVICES ─▶ the same trees, of those that nobody
//	                                                  may answer: REJECT or DROP
//
// The names are kube-proxy's, so people that know those rules find the way, and so a
// running kube-proxy's rules are taken over chain by chain. Its one long list is a
// tree here: each step halves what is left twice, and a packet to no Service of
// ours leaves after a handful of rules.
package iptables

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// The chains that are there whatever Services there are.
const (
	services   = "KUBE-SERVICES"          // both tables: the way in
	nodePorts  = "KUBE-NODEPORTS"         // nat: to a port of the node; filter: health-check ports
	turnedAway = "KUBE-EXTERNAL-SERVICES" // filter: node ports that no endpoint may answer
	denied     = "KUBE-PROXY-FIREWALL"    // filter: the source is not allowed
	forward    = "KUBE-FORWARD"           // filter: what is on its way stays on its way
	guard      = "KUBE-LOCALNET-GUARD"    // filter: nothing from outside reaches 127.0.0.0/8
	markMasq   = masquerade.Mark          // nat: have it masqueraded; all dataplanes share it
	markOthers = "KUBE-MARK-NOT-POD"      // nat: mark it unless a pod of the cluster sent it
)

func nat(chain string) iptables.ID    { return iptables.ID{Table: "nat", Chain: chain} }
func filter(chain string) iptables.ID { return iptables.ID{Table: "filter", Chain: chain} }

func clusterChain(n sdk.Name) string {
	return "KUBE-SVC-" + iptables.Hash(iptables.Label(n)+n.Protocol.String())
}
func localChain(n sdk.Name) string {
	return "KUBE-SVL-" + iptables.Hash(iptables.Label(n)+n.Protocol.String())
}
func externalChain(n sdk.Name) string {
	return "KUBE-EXT-" + iptables.Hash(iptables.Label(n)+n.Protocol.String())
}

func endpointChain(n sdk.Name, ep netip.AddrPort) string {
	return "KUBE-SEP-" + iptables.Hash(iptables.Label(n)+n.Protocol.String()+ep.String())
}

// sourcesChain lets in only some sources of f. A Service mostly has one such
// frontend, and its chain has kube-proxy's name.
func sourcesChain(svc sdk.Service, f sdk.Frontend) string {
	text := iptables.Label(svc.Name) + svc.Name.Protocol.String()
	for _, other := range svc.Frontends {
		if len(other.Sources) == 0 {
			continue
		}
		if other.Addr != f.Addr || other.Kind != f.Kind {
			text += f.Kind.String() + f.Addr.String()
		}
		break
	}
	return "KUBE-FW-" + iptables.Hash(text)
}

// partChain is one of the parts that a long list of endpoints is divided into.
func partChain(chain string, i int) string {
	n := strconv.FormatInt(int64(i), 36)
	return chain + "000"[min(len(n), 3):] + n
}

// stickyPart is the chain that sends callers back to the endpoints of a part. Those of
// partChain have no capital letters.
func stickyPart(chain string, i int) string {
	n := strings.ToUpper(strconv.FormatInt(int64(i), 36))
	return chain + "S0"[:max(0, 3-len(n))] + n
}
