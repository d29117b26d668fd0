// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
)

// A Follower keeps a running host's settings as its file says. It reads the file again and
// again instead of waiting for a notification, which is lost when a file is replaced; a
// ConfigMap is replaced by moving a symlink.
type Follower struct {
	flags *pflag.FlagSet

	// Check returns why a file cannot be applied that has no other fault; nil: it is not asked. It
	// is set before Run.
	Check func(wanted *Host) error

	seen    string // what the last look found: a hash or an error; only Look uses this and the next
	handled string // what Look acted upon last

	state atomic.Pointer[State]
}

// A State is what a host has of its file, after a look that led to something.
type State struct {
	Host    *Host     // in force
	Applied []string  // fields that this look changed
	Pending []string  // fields that the file has otherwise, and that need a restart
	Err     error     // the file as it is now cannot be used; the settings stay as they are
	Since   time.Time // of Err
}

// Follow returns a Follower that starts with h, as Load returned it with the same flags.
func Follow(h *Host, flags *pflag.FlagSet) *Follower {
	f := &Follower{flags: flags, seen: h.From.Hash, handled: h.From.Hash}
	f.state.Store(&State{Host: h})
	return f
}

// Run looks at the file each period, and at once when reload says that the file is complete, until ctx
// ends. It calls changed, one call at a time, for each look that led to something or that reload asked for.
func (f *Follower) Run(ctx context.Context, period time.Duration, reload <-chan os.Signal, changed func(State)) {
	tick := time.Tick(period)
	for {
		complete := false
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-reload:
			complete = true
		}
		if s, ok := f.Look(complete); ok {
			changed(s)
		}
	}
}

// Host returns the settings in force.
func (f *Follower) Host() *Host { return f.State().Host }

// State returns what the host has of its file.
func (f *Follower) State() State { return *f.state.Load() }

// Look reads the file once, and reports whether that led to something. What it finds counts when a
// second look finds the same, because the first may have met an editor in the middle of writing, or when
// a user says that the file is complete.
func (f *Follower) Look(complete bool) (s State, ok bool) {
	s = f.State()
	path := s.Host.From.Path
	data, err := readFile(path)
	found := hashOf(data)
	if err != nil {
		found = err.Error()
	}
	settled := found == f.seen && found != f.handled
	if f.seen = found; !settled && !complete {
		return s, false
	}
	f.handled = found
	var wanted *Host
	if err == nil {
		wanted, err = Parse(path, data, f.flags)
	}
	if err == nil && f.Check != nil {
		err = f.Check(wanted)
	}
	if err != nil && s.Err == nil {
		s.Since = time.Now()
	}
	if s.Applied, s.Err = nil, err; err == nil {
		s.Since = time.Time{}
		s.Host, s.Applied, s.Pending = apply(s.Host, wanted)
	}
	f.state.Store(&s)
	return s, true
}

// hashOf returns a short text that differs for each content of a file.
func hashOf(data []byte) string {
	return fmt.Sprintf("%.6x", sha256.Sum256(data))
}

// InUse returns the modes that the file's may stand for.
func InUse(mode string) []string {
	if mode == Auto {
		return []string{"iptables", "nftables"}
	}
	return []string{mode}
}

// apply returns running with what can change while it runs as wanted has it, the fields that this changed, and those that
// wanted has otherwise, which need a restart. A plugin that is not in use is launched with what the file says then; of one
// that is in use the options can change, unless its address does.
func apply(running, wanted *Host) (next *Host, applied, pending []string) {
	h := *running
	h.From = wanted.From
	h.Mode, h.Logging.Level, h.NodePortAddresses = wanted.Mode, wanted.Logging.Level, wanted.NodePortAddresses
	h.SyncPeriod, h.MinSyncPeriod, h.Swap = wanted.SyncPeriod, wanted.MinSyncPeriod, wanted.Swap
	h.Plugins = maps.Clone(wanted.Plugins)
	for _, name := range InUse(running.Mode) {
		p, runs := running.Plugins[name]
		changed, stays := wanted.Plugins[name]
		if p.Address == changed.Address {
			p.Options = changed.Options
		}
		if runs || stays {
			h.Plugins[name] = p
		}
	}
	return &h, differing(running, &h), differing(&h, wanted)
}

// differing returns the paths of the fields whose values differ between a and b.
func differing(a, b *Host) (paths []string) {
	of, other := leaves(a), leaves(b)
	all := maps.Clone(of)
	maps.Copy(all, other)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if plain(of[path]) != plain(other[path]) {
			paths = append(paths, path)
		}
	}
	return paths
}
