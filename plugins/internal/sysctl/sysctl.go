// SPDX-License-Identifier: Apache-2.0

// Package sysctl sets the kernel parameters that a mode needs, and records them in the ledger, because
// several modes may need the same parameter: the last one that gives it back restores the original value.
// It never sets a parameter without that record. Start with Settings.
package sysctl

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A Setting is the wanted value of a kernel parameter.
type Setting struct {
	Path, Value string
	Floor       bool // Value is a minimum
	Must        bool // without it packets are lost; otherwise the mode serves without it if it cannot be set from here
	First       bool // it must be set before anything is written, in any role
	Watch       bool // it is only checked, because the operator sets it
}

// Now returns the value of the parameter, and whether it satisfies the setting.
func (s Setting) Now() (value string, as bool) {
	data, err := os.ReadFile(s.Path)
	if err != nil {
		return "", true // unknown
	}
	value = strings.Join(strings.Fields(string(data)), " ")
	has, err := strconv.ParseUint(value, 10, 64)
	return value, value == s.Value || s.Floor && err == nil && has >= s.number()
}

// number returns the Value of a floor.
func (s Setting) number() uint64 {
	n, _ := strconv.ParseUint(s.Value, 10, 64)
	return n
}

// Settings are the kernel parameters that a mode needs.
type Settings []Setting

// Folder is the folder of most kernel parameters.
const Folder = "/proc/sys/"

// RouteLocalnet is the parameter that makes the kernel route 127.0.0.0/8, which node ports at 127.0.0.1 need.
// While it is set, a rule must drop packets that other machines send there, so Localnet is set after that rule
// is written.
const RouteLocalnet = Folder + "net/ipv4/conf/all/route_localnet"

// Forwarding are the parameters that make the kernel forward packets. Without them only callers on the node
// reach endpoints on other machines.
var Forwarding = Settings{
	{Path: Folder + "net/ipv4/ip_forward", Value: "1", Watch: true},
	{Path: Folder + "net/ipv6/conf/all/forwarding", Value: "1", Watch: true},
}

// Localnet sets RouteLocalnet.
var Localnet = Setting{Path: RouteLocalnet, Value: "1", Must: true}

// Liberal reports whether conntrack treats TCP packets outside the window as valid. If so, no rule must drop
// invalid packets.
func Liberal() bool {
	value, err := os.ReadFile(Folder + "net/netfilter/nf_conntrack_tcp_be_liberal")
	return err == nil && strings.TrimSpace(string(value)) != "0"
}

// hashSize is the size of conntrack's hash table.
const hashSize = "/sys/module/nf_conntrack/parameters/hashsize"

// Conntrack returns the settings for an operator's limits of connection tracking. The parameters are below
// folder. A zero limit has no setting.
func Conntrack(folder string, c sdk.ConntrackLimits) Settings {
	var all Settings
	add := func(name string, n uint64) {
		if n > 0 {
			all = append(all, Setting{Path: folder + "net/netfilter/" + name, Value: strconv.FormatUint(n, 10)})
		}
	}
	seconds := func(d time.Duration) uint64 { return uint64(max(d, 0) / time.Second) }
	floor := func(path string, n uint32) {
		if n > 0 {
			all = append(all, Setting{Path: path, Value: strconv.FormatUint(uint64(n), 10), Floor: true})
		}
	}
	floor(folder+"net/netfilter/nf_conntrack_max", c.Max)
	floor(hashSize, c.Max/4)
	add("nf_conntrack_tcp_timeout_established", seconds(c.TCPEstablishedTimeout))
	add("nf_conntrack_tcp_timeout_close_wait", seconds(c.TCPCloseWaitTimeout))
	add("nf_conntrack_udp_timeout", seconds(c.UDPTimeout))
	add("nf_conntrack_udp_timeout_stream", seconds(c.UDPStreamTimeout))
	if c.TCPBeLiberal {
		add("nf_conntrack_tcp_be_liberal", 1)
	}
	return all
}

// First returns the settings that must be set before anything is written.
func (all Settings) First() Settings {
	return slices.DeleteFunc(slices.Clone(all), func(s Setting) bool { return !s.First })
}

// Take sets the parameters. It calls unset with each that cannot be set from here, unless that is an error
// because of Must.
func (all Settings) Take(shared *ledger.Ledger, mode string, unset func(Setting, error)) error {
	for _, s := range all {
		if s.Watch {
			continue
		}
		var err error
		if s.Floor {
			err = shared.TakeFloor(mode, s.Path, s.number())
		} else {
			err = shared.Take(mode, s.Path, s.Value)
		}
		if err != nil && (s.Must || !OutOfReach(err)) {
			return err
		}
		if err != nil {
			unset(s, err)
		}
	}
	return nil
}

// Release gives back the parameters that mode has set and no longer needs. A parameter that cannot be written
// from here is logged and stays in the ledger, for the next process that can write it: in a container without
// privileges /proc/sys is read-only, and a parameter that a privileged process has set is no reason not to
// serve.
func (all Settings) Release(shared *ledger.Ledger, mode string, log *slog.Logger) error {
	var asked []string
	for _, s := range all {
		asked = append(asked, s.Path)
	}
	given, err := shared.Release(mode, asked...)
	if len(given) > 0 {
		log.Info("restored kernel parameters", "what", given)
	}
	if err != nil && OutOfReach(err) {
		log.Warn("cannot restore kernel parameters", "err", err)
		return nil
	}
	return err
}

// GiveBack gives back all parameters that mode has set, and describes them. A dry run only describes them. dir
// is the folder of the ledger.
func GiveBack(dir, mode string, l sdk.Leftovers) ([]string, error) {
	shared, err := ledger.Open(dir)
	if err != nil {
		return nil, err
	}
	if l.DryRun {
		return shared.Held(mode)
	}
	return shared.Release(mode)
}

// OutOfReach reports whether err says that a file of the kernel or of the node cannot be written from here, for
// example because this process runs in a container.
func OutOfReach(err error) bool {
	return slices.ContainsFunc([]error{fs.ErrPermission, fs.ErrNotExist, errors.ErrUnsupported, syscall.EROFS},
		func(why error) bool { return errors.Is(err, why) })
}
