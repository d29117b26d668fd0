// SPDX-License-Identifier: Apache-2.0

// Package sysctl sets the kernel's parameters that a mode asks for, by the ledger: other
// modes may ask for the same ones, and the last that gives one back restores its value.
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

// A Setting is one of the kernel's parameters, and what it is to be. Without some of
// them packets go astray. The others belong to the whole machine, and may be out of
// reach: then serving goes on without.
type Setting struct {
	Path, Value string
	Floor       bool // Value is the least that it is to be
	Must        bool
	First       bool // it is to be so before anything is written, in any role
	Watch       bool // it is the node's affair, and only looked at
}

// Now returns the value of the parameter, and whether it satisfies the setting.
func (s Setting) Now() (value string, as bool) {
	data, err := os.ReadFile(s.Path)
	if err != nil {
		return "", true // nothing is known against it
	}
	value = strings.Join(strings.Fields(string(data)), " ")
	has, err := strconv.ParseUint(value, 10, 64)
	return value, value == s.Value || s.Floor && err == nil && has >= s.number()
}

// number is the Value of a floor.
func (s Setting) number() uint64 {
	n, _ := strconv.ParseUint(s.Value, 10, 64)
	return n
}

// Settings are what a mode asks of the kernel.
type Settings []Setting

// Folder is where the kernel has most of its parameters.
const Folder = "/proc/sys/"

// RouteLocalnet is whether the kernel routes 127.0.0.0/8, as it must where node ports answer there. While
// it does, a rule has to drop what others send there: Localnet is set after that rule was written.
const RouteLocalnet = Folder + "net/ipv4/conf/all/route_localnet"

// Forwarding are whether the kernel forwards packets, IPv4 and IPv6. Without it Services with endpoints elsewhere answer only
// callers on the node.
var Forwarding = Settings{
	{Path: Folder + "net/ipv4/ip_forward", Value: "1", Watch: true},
	{Path: Folder + "net/ipv6/conf/all/forwarding", Value: "1", Watch: true},
}

// Localnet has the kernel route 127.0.0.0/8.
var Localnet = Setting{Path: RouteLocalnet, Value: "1", Must: true}

// Liberal reports whether the kernel takes TCP packets outside the window for valid. Then none need be
// dropped.
func Liberal() bool {
	value, err := os.ReadFile(Folder + "net/netfilter/nf_conntrack_tcp_be_liberal")
	return err == nil && strings.TrimSpace(string(value)) != "0"
}

// hashSize is in how many lists conntrack keeps its connections.
const hashSize = "/sys/module/nf_conntrack/parameters/hashsize"

// Conntrack is what an operator asks of connection tracking, whose parameters are
// below folder. Zero asks for nothing.
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

// First are those that are to be set before anything is written.
func (all Settings) First() Settings {
	return slices.DeleteFunc(slices.Clone(all), func(s Setting) bool { return !s.First })
}

// Take sets them. One that need not be set, and cannot be from here, is told.
func (all Settings) Take(shared *ledger.Ledger, mode string, tell func(Setting, error)) error {
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
			tell(s, err)
		}
	}
	return nil
}

// Release gives back the parameters that mode took and no longer asks for. One that is out of reach
// stays in the ledger, for the next process that may write it: in a container without privileges
// /proc/sys is read-only, and what a privileged one took is no reason not to serve.
func (all Settings) Release(shared *ledger.Ledger, mode string, log *slog.Logger) error {
	var asked []string
	for _, s := range all {
		asked = append(asked, s.Path)
	}
	given, err := shared.Release(mode, asked...)
	if len(given) > 0 {
		log.Info("gave back kernel parameters", "what", given)
	}
	var failed []error
	for _, err := range each(err) {
		if !OutOfReach(err) {
			failed = append(failed, err)
			continue
		}
		log.Warn("cannot give back a kernel parameter, which stays as it is", "err", err)
	}
	return errors.Join(failed...)
}

// each are the errors that errors.Join joined.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, each(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// GiveBack gives back all that mode took, and names it; a dry run only names it. dir has the
// ledger.
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

// OutOfReach reports whether err says that a file of the kernel or of the node cannot be
// written from here, as those of the whole machine cannot in a container.
func OutOfReach(err error) bool {
	return slices.ContainsFunc([]error{fs.ErrPermission, fs.ErrNotExist, errors.ErrUnsupported, syscall.EROFS},
		func(why error) bool { return errors.Is(err, why) })
}
