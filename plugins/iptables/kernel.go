// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A setting is one of the kernel's parameters, and what it is to be.
type setting struct{ path, value string }

const (
	netfilter     = "/proc/sys/net/netfilter/"
	routeLocalnet = "/proc/sys/net/ipv4/conf/all/route_localnet"
)

// settings are the parameters that n asks for. Zero asks for nothing.
func settings(n sdk.Node, localhost bool) []setting {
	var all []setting
	seconds := func(name string, d time.Duration) {
		if d > 0 {
			all = append(all, setting{netfilter + name, strconv.Itoa(int(d / time.Second))})
		}
	}
	if n.Conntrack.Max > 0 {
		all = append(all, setting{netfilter + "nf_conntrack_max", strconv.FormatUint(uint64(n.Conntrack.Max), 10)})
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

// sysctls sets the parameters, or checks them when somebody else sets them. Those
// of conntrack belong to the whole machine, and may be out of reach: then serving
// goes on without.
func (p *plugin) sysctls() error {
	var missing []string
	for _, s := range settings(p.state.Node, p.localhost()) {
		if p.setup.Sysctls == sdk.ExpectSysctls {
			if value, err := os.ReadFile(s.path); err != nil || strings.TrimSpace(string(value)) != s.value {
				missing = append(missing, s.path+"="+s.value)
			}
			continue
		}
		err := p.ledger.Take(mode, s.path, s.value)
		switch {
		case err == nil:
		case s.path == routeLocalnet:
			return err
		case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), strings.Contains(err.Error(), "read-only"):
			p.log.Warn("cannot set a kernel parameter", "path", s.path, "value", s.value, "err", err)
		default:
			return err
		}
	}
	if len(missing) > 0 {
		return &sdk.Refusal{Field: "sysctls", Why: "they are not set: " + strings.Join(missing, " "), Try: "set them before the plugin starts, or let it set them"}
	}
	return nil
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
