// SPDX-License-Identifier: Apache-2.0

package userspace

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

const netfilter = "/proc/sys/net/netfilter/"

// settings are what the operator asks of connection tracking. Zero asks for
// nothing.
func settings(c sdk.ConntrackLimits) []setting {
	var all []setting
	add := func(name string, n uint64) {
		if n > 0 {
			all = append(all, setting{netfilter + name, strconv.FormatUint(n, 10)})
		}
	}
	add("nf_conntrack_max", uint64(c.Max))
	for _, t := range []struct {
		name string
		time time.Duration
	}{
		{"nf_conntrack_tcp_timeout_established", c.TCPEstablishedTimeout},
		{"nf_conntrack_tcp_timeout_close_wait", c.TCPCloseWaitTimeout},
		{"nf_conntrack_udp_timeout", c.UDPTimeout},
		{"nf_conntrack_udp_timeout_stream", c.UDPStreamTimeout},
	} {
		add(t.name, uint64(max(t.time, 0)/time.Second))
	}
	if c.TCPBeLiberal {
		add("nf_conntrack_tcp_be_liberal", 1)
	}
	return all
}

// setLimits sets the parameters that the node asks for, or checks them when somebody
// else sets them, and gives back those that it no longer asks for.
func (d *Dataplane) setLimits() error {
	w := d.way
	if w == nil || w.rules.lock == nil || d.role != sdk.Active {
		return nil
	}
	asked := d.relay.ground.Load().node.Conntrack
	if w.limited != nil && *w.limited == asked {
		return nil
	}
	all := settings(asked)
	if d.sysctls == sdk.ExpectSysctls {
		return expect(all)
	}
	var paths []string
	for _, s := range all {
		paths = append(paths, s.path)
		err := w.rules.ledger.Take(mode, s.path, s.value)
		if err != nil && !beyond(err) {
			return err
		}
		if err != nil {
			d.relay.log.Load().Warn("cannot set a kernel parameter", "path", s.path, "value", s.value, "err", err)
		}
	}
	if _, err := w.rules.ledger.Release(mode, paths...); err != nil {
		return err
	}
	w.limited = &asked
	return nil
}

// beyond reports whether a parameter is out of reach: those of the whole machine
// are, in a container. Serving goes on without.
func beyond(err error) bool {
	for _, why := range []error{fs.ErrPermission, fs.ErrNotExist, errors.ErrUnsupported, syscall.EROFS} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
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
