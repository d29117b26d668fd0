// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A setting is one of the kernel's parameters, and what it is to be.
type setting struct{ path, value string }

const (
	netfilter     = "/proc/sys/net/netfilter/"
	hashSize      = "/sys/module/nf_conntrack/parameters/hashsize"
	routeLocalnet = "/proc/sys/net/ipv4/conf/all/route_localnet"
)

// settings are the parameters that n asks for. Zero asks for nothing. hashed is how
// many lists conntrack keeps its connections in, which is never made smaller.
func settings(n sdk.Node, localhost bool, hashed uint64) []setting {
	var all []setting
	seconds := func(name string, d time.Duration) {
		if d > 0 {
			all = append(all, setting{netfilter + name, strconv.Itoa(int(d / time.Second))})
		}
	}
	if n.Conntrack.Max > 0 {
		all = append(all, setting{netfilter + "nf_conntrack_max", strconv.FormatUint(uint64(n.Conntrack.Max), 10)})
		if buckets := uint64(n.Conntrack.Max / 4); buckets > hashed {
			all = append(all, setting{hashSize, strconv.FormatUint(buckets, 10)})
		}
	}
	seconds("nf_conntrack_tcp_timeout_established", n.Conntrack.TCPEstablishedTimeout)
	seconds("nf_conntrack_tcp_timeout_close_wait", n.Conntrack.TCPCloseWaitTimeout)
	seconds("nf_conntrack_udp_timeout", n.Conntrack.UDPTimeout)
	seconds("nf_conntrack_udp_timeout_stream", n.Conntrack.UDPStreamTimeout)
	if n.Conntrack.TCPBeLiberal {
		all = append(all, setting{netfilter + "nf_conntrack_tcp_be_liberal", "1"})
	}
	if localhost {
		all = append(all, setting{routeLocalnet, "1"})
	}
	return all
}

// sysctls sets the parameters, or checks them when somebody else sets them.
func (p *plugin) sysctls() error {
	all := settings(p.state.Node, p.localhost(), hashed())
	if p.setup.Sysctls == sdk.ExpectSysctls {
		return expect(all)
	}
	for _, s := range all {
		if err := p.set(s); err != nil {
			return err
		}
	}
	return nil
}

// set sets one parameter. Those of conntrack belong to the whole machine, and may
// be out of reach: then serving goes on without.
func (p *plugin) set(s setting) error {
	err := p.ledger.Take(mode, s.path, s.value)
	if err == nil || s.path == routeLocalnet {
		return err
	}
	for _, beyond := range []error{fs.ErrPermission, fs.ErrNotExist, errors.ErrUnsupported, syscall.EROFS} {
		if errors.Is(err, beyond) {
			p.log.Warn("cannot set a kernel parameter", "path", s.path, "value", s.value, "err", err)
			return nil
		}
	}
	return err
}

// expect checks what somebody else is to set.
func expect(all []setting) error {
	var missing []string
	for _, s := range all {
		if value, err := os.ReadFile(s.path); err != nil || strings.TrimSpace(string(value)) != s.value {
			missing = append(missing, s.path+"="+s.value)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &sdk.Refusal{Field: "sysctls", Why: "they are not set: " + strings.Join(missing, " "), Try: "set them before the plugin starts, or let it set them"}
}

// unset gives back the parameters that the node no longer asks for. It goes before
// the rules: while the kernel routes 127.0.0.0/8, the guard must stand.
func (p *plugin) unset() error {
	if p.lock == nil || p.setup.Sysctls == sdk.ExpectSysctls {
		return nil
	}
	wanted := []string{hashSize} // it may be as large as was asked for, and then is not asked for again
	for _, s := range settings(p.state.Node, p.localhost(), 0) {
		wanted = append(wanted, s.path)
	}
	given, err := p.ledger.Release(mode, wanted...)
	if len(given) > 0 {
		p.log.Info("gave back kernel parameters", "what", given)
	}
	return err
}

// hashed is how many lists conntrack keeps its connections in; zero: who knows.
func hashed() uint64 {
	value, err := os.ReadFile(hashSize)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(value)), 10, 64)
	return n
}

func (p *plugin) localhost() bool {
	for _, s := range p.sides {
		if s.book.ground.localhost {
			return true
		}
	}
	return false
}

// liberal reports whether the kernel takes TCP packets outside the window for
// valid. Then none need be dropped.
func liberal() bool {
	value, err := os.ReadFile(netfilter + "nf_conntrack_tcp_be_liberal")
	return err == nil && strings.TrimSpace(string(value)) != "0"
}
