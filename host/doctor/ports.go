// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/host/admin"
)

// ephemeral finds node ports that the kernel may give to a connection of the node's own, which then
// takes what is sent to the Service (ip_local_port_range, ip_local_reserved_ports; ip-sysctl.rst).
func (n Node) ephemeral() []admin.Finding {
	const check = "node ports"
	text, err := n.read("sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return unknown(check, err)
	}
	var low, high uint16
	if _, err := fmt.Sscan(text, &low, &high); err != nil {
		return unknown(check, fmt.Errorf("ip_local_port_range is %q: %w", text, err))
	}
	reserved, err := n.read("sys/net/ipv4/ip_local_reserved_ports")
	if err != nil {
		return unknown(check, err)
	}
	var taken []string
	for _, port := range n.NodePorts {
		if low <= port && port <= high && !within(reserved, port) {
			taken = append(taken, strconv.Itoa(int(port)))
		}
	}
	if len(taken) == 0 {
		return ok(check, "none is among the ports %d to %d that connections of this node use", low, high)
	}
	slices.Sort(taken)
	return []admin.Finding{{Check: check, Result: admin.Warn,
		Why: fmt.Sprintf("%s: connections of this node may use them too (ip_local_port_range is %d to %d)", some(taken), low, high),
		Try: "sysctl -w net.ipv4.ip_local_reserved_ports=" + strings.Join(slices.DeleteFunc([]string{reserved, strings.Join(taken, ",")}, func(s string) bool { return s == "" }), ",")}}
}

// within reports whether a list of ports and ranges, such as "8080,30000-30100", has a port.
func within(list string, port uint16) bool {
	for word := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(word), "-")
		first, err := strconv.ParseUint(from, 10, 16)
		if err != nil {
			continue
		}
		last := first
		if isRange {
			if last, err = strconv.ParseUint(to, 10, 16); err != nil {
				continue
			}
		}
		if first <= uint64(port) && uint64(port) <= last {
			return true
		}
	}
	return false
}

// proxies are other programs that serve Services, by an interface that each makes.
func (n Node) proxies() []admin.Finding {
	const check = "other proxies"
	made := map[string]string{
		"cilium_host":   "Cilium",
		"kube-dummy-if": "kube-router",
		"bpfin.cali":    "Calico, with eBPF",
		"bpfout.cali":   "Calico, with eBPF",
		"antrea-gw0":    "Antrea",
		"nodelocaldns":  "NodeLocal DNSCache",
	}
	var there []string
	for _, i := range n.Interfaces {
		if program, is := made[i.Name]; is {
			there = append(there, fmt.Sprintf("%s (interface %s)", program, i.Name))
		}
	}
	if len(there) == 0 {
		return ok(check, "no interface of one is there")
	}
	return []admin.Finding{{Check: check, Result: admin.Warn,
		Why: some(there) + ": it may catch packets before Pointsman, or have left that behind",
		Try: "see whether it is meant to serve Services here, and have one of the two do it"}}
}

// Interfaces returns those of this node.
func Interfaces() []net.Interface {
	all, _ := net.Interfaces() // without them nothing is found by them
	return all
}
