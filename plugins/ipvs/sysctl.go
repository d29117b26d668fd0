// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// settings are the kernel's parameters that the node, the options and the kernel's
// release ask for.
func (m machine) settings(n sdk.Node, o options) sysctl.Settings {
	var all sysctl.Settings
	must := func(name, value string) {
		all = append(all, sysctl.Setting{Path: m.parameters + "net/ipv4/" + name, Value: value, Must: true, First: true})
	}
	must("vs/conntrack", "1")                 // rules see what IPVS does, and a swap keeps its connections
	must("vs/expire_nodest_conn", "1")        // a client that was sent to a destination that is gone is sent to another
	must("vs/expire_quiescent_template", "1") // also a client that sticks
	must("ip_forward", "1")
	if reusesBadly(m.release()) {
		must("vs/conn_reuse_mode", "0")
	}
	if o.StrictARP {
		must("conf/all/arp_ignore", "1")
		must("conf/all/arp_announce", "2")
	}
	return append(all, sysctl.Conntrack(m.parameters, n.Conntrack)...)
}

// reusesBadly reports whether a kernel of this release makes a client that uses a
// port again wait for a second, or go to a destination that is being drained. Since 5.9 it
// is right by itself; before 4.1 there is no choice.
// https://github.com/kubernetes/kubernetes/issues/81775
func reusesBadly(release string) bool {
	major, rest, _ := strings.Cut(release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, _ := strconv.Atoi(major)
	y, _ := strconv.Atoi(strings.TrimRight(minor, "-+abcdefghijklmnopqrstuvwxyz"))
	return (x > 4 || x == 4 && y >= 1) && (x < 5 || x == 5 && y < 9)
}
