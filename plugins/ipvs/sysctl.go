// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A setting is one of the kernel's parameters, and what it is to be. Without some of
// them packets go astray; the others belong to the whole machine and may be out of
// reach.
type setting struct {
	path, value string
	must        bool
}

// Parameters are named as the kernel names them, below its folder.
const (
	netfilter = "net/netfilter/"
	vs        = "net/ipv4/vs/"
	ipv4      = "net/ipv4/"
)

// settings are the parameters that the node, the options and the kernel's release
// ask for.
func settings(n sdk.Node, o options, release string) []setting {
	all := []setting{
		{vs + "conntrack", "1", true},                 // rules see what IPVS does, and a swap keeps its connections
		{vs + "expire_nodest_conn", "1", true},        // who was sent to a real that is gone is sent to another
		{vs + "expire_quiescent_template", "1", true}, // also a client that sticks
		{ipv4 + "ip_forward", "1", true},
	}
	if reusesBadly(release) {
		all = append(all, setting{vs + "conn_reuse_mode", "0", true})
	}
	if o.StrictARP {
		all = append(all, setting{ipv4 + "conf/all/arp_ignore", "1", true}, setting{ipv4 + "conf/all/arp_announce", "2", true})
	}
	return append(all, limits(n.Conntrack)...)
}

// limits are what an operator may ask of connection tracking. Zero asks for nothing.
func limits(c sdk.ConntrackLimits) []setting {
	var all []setting
	seconds := func(name string, d time.Duration) {
		if d > 0 {
			all = append(all, setting{netfilter + name, strconv.Itoa(int(d / time.Second)), false})
		}
	}
	if c.Max > 0 {
		all = append(all, setting{netfilter + "nf_conntrack_max", strconv.FormatUint(uint64(c.Max), 10), false})
	}
	seconds("nf_conntrack_tcp_timeout_established", c.TCPEstablishedTimeout)
	seconds("nf_conntrack_tcp_timeout_close_wait", c.TCPCloseWaitTimeout)
	seconds("nf_conntrack_udp_timeout", c.UDPTimeout)
	seconds("nf_conntrack_udp_timeout_stream", c.UDPStreamTimeout)
	if c.TCPBeLiberal {
		all = append(all, setting{netfilter + "nf_conntrack_tcp_be_liberal", "1", false})
	}
	return all
}

// reusesBadly reports whether a kernel of this release makes a client that uses a
// port again wait for a second, or go to a real that is being drained. Since 5.9 it
// is right by itself; before 4.1 there is no choice.
// https://github.com/kubernetes/kubernetes/issues/81775
func reusesBadly(release string) bool {
	major, rest, _ := strings.Cut(release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, _ := strconv.Atoi(major)
	y, _ := strconv.Atoi(strings.TrimRight(minor, "-+abcdefghijklmnopqrstuvwxyz"))
	return (x > 4 || x == 4 && y >= 1) && (x < 5 || x == 5 && y < 9)
}

// sysctls sets the parameters, or checks them when somebody else sets them.
func (p *plugin) sysctls() error {
	var missing []string
	for _, s := range settings(p.state.Node, p.options, p.edges.release()) {
		path := p.edges.parameters + s.path
		if p.setup.Sysctls == sdk.ExpectSysctls {
			if value, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(value)) != s.value {
				missing = append(missing, path+"="+s.value)
			}
			continue
		}
		err := p.ledger.Take(mode, path, s.value)
		switch {
		case err == nil:
		case !s.must && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "read-only")):
			p.log.Warn("cannot set a kernel parameter", "path", path, "value", s.value, "err", err)
		default:
			return err
		}
	}
	if len(missing) > 0 {
		return &sdk.Refusal{Field: "sysctls", Why: "they are not set: " + strings.Join(missing, " "), Try: "set them before the plugin starts, or let it set them"}
	}
	return nil
}
