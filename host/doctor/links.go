// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/admin"
)

// bridges finds a bridge whose ports' packets no rule sees (net.bridge.bridge-nf-call-iptables): where
// two pods of this node are on it and one calls a Service that the other serves, the answer does not come
// back through the node, and comes from an address that the caller did not call.
func (n Node) bridges() (found []admin.Finding) {
	const check = "bridges"
	var bridges []string
	for _, i := range n.Interfaces {
		if n.Kinds[i.Name] == "bridge" {
			bridges = append(bridges, i.Name)
		}
	}
	if len(bridges) == 0 {
		return ok(check, "there is none")
	}
	slices.Sort(bridges)
	for _, key := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		if key == "bridge-nf-call-ip6tables" && !n.hasIPv6() {
			continue
		}
		on, err := n.number("sys/net/bridge/" + key)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return []admin.Finding{bridged(bridges, "the module br_netfilter is not loaded", "modprobe br_netfilter, and keep it in /etc/modules-load.d, if pods are on it")}
		case err != nil:
			found = append(found, unknown(check, err)...)
		case on == 0:
			found = append(found, bridged(bridges, "net.bridge."+key+" is 0", "sysctl -w net.bridge."+key+"=1, and keep it in /etc/sysctl.d, if pods are on it"))
		}
	}
	if len(found) == 0 {
		return ok(check, "rules see what passes %s", some(bridges))
	}
	return found
}

func bridged(bridges []string, reason, try string) admin.Finding {
	return admin.Finding{Check: "bridges", Result: admin.Warn, Try: try,
		Why: "no rule sees what passes " + some(bridges) + ": " + reason + ", so that a pod does not reach a Service that a pod on the same bridge serves"}
}

// packetSizes finds pods' interfaces that send larger packets than the smallest link by which the node
// reaches others: what does not fit is lost where the message that says so is (path MTU discovery,
// RFC 1191). A pod's end of a veth pair has the MTU of the node's end.
func (n Node) packetSizes() []admin.Finding {
	const check = "MTU"
	least, large := net.Interface{}, []string(nil)
	for _, i := range n.uplinks() {
		if least.MTU == 0 || i.MTU < least.MTU {
			least = i
		}
	}
	if least.MTU == 0 {
		return ok(check, "there is no default route")
	}
	for _, i := range n.Interfaces {
		if n.Kinds[i.Name] == "veth" && i.MTU > least.MTU && i.Flags&net.FlagUp != 0 {
			large = append(large, fmt.Sprintf("%s (%d)", i.Name, i.MTU))
		}
	}
	if len(large) == 0 {
		return ok(check, "no pod's is above that of %s, %d", least.Name, least.MTU)
	}
	slices.Sort(large)
	return []admin.Finding{{Check: check, Result: admin.Warn,
		Why: fmt.Sprintf("pods send larger packets than the %d of %s, by which this node reaches others: %s", least.MTU, least.Name, some(large)),
		Try: "set the MTU in the network plugin's settings to what the network carries"}}
}

// uplinks are the interfaces of default routes (IPv4, in /proc/net/route; addresses are hexadecimal).
func (n Node) uplinks() (all []net.Interface) {
	text, _ := n.read("net/route")
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 8 || words[1] != "00000000" || words[7] != "00000000" {
			continue
		}
		for _, i := range n.Interfaces {
			if i.Name == words[0] {
				all = append(all, i)
			}
		}
	}
	return all
}
