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

// A Follower applies changes of the config file to a running host. It polls the file: notifications
// are lost when a file is replaced, and a ConfigMap is replaced by moving a symlink.
type Follower struct {
	flags *pflag.FlagSet

	// Check returns an error if valid settings cannot be applied. It may be nil. It must not be replaced after Run has
	// started.
	Check func(wanted *Host) error

	seen    string // hash or error of the last look; only Look uses seen and handled
	handled string // hash or error that Look reported last

	state atomic.Pointer[State]
}

// A State is the result of a look at the file.
type State struct {
	Host    *Host     // the settings in force
	Applied []string  // fields that this look changed
	Pending []string  // fields that were changed in the file and need a restart
	Err     error     // why the file cannot be used; nil if it is in force
	Since   time.Time // when Err began
}

// Follow returns a Follower that starts with h. Load must have returned h for the same flags.
func Follow(h *Host, flags *pflag.FlagSet) *Follower {
	f := &Follower{flags: flags, seen: h.From.Hash, handled: h.From.Hash}
	f.state.Store(&State{Host: h})
	return f
}

// Run calls Look each period until ctx ends. A value from reload means that the file is complete and must be read at
// once. Run calls changed for each such Look, and for each one that found a change.
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

// State returns the result of the last look that found something.
func (f *Follower) State() State { return *f.state.Load() }

// Look reads the file once, and reports whether it was changed. A change counts when two looks find the same
// content, because an editor may be in the middle of writing, or when the user says that the file is complete.
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

// hashOf returns a short hash.
func hashOf(data []byte) string {
	return fmt.Sprintf("%.6x", sha256.Sum256(data))
}

// InUse returns the modes that a mode in the file may stand for.
func InUse(mode string) []string {
	if mode == Auto {
		return []string{"iptables", "nftables"}
	}
	return []string{mode}
}

// apply returns running with those fields from wanted that can change in a running host, the paths of the changed fields,
// and the paths of the fields that need a restart. Of a plugin in use only the options can change, and only together with
// the address; the settings of the others are used at their next start.
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
	of, other := flatten(a), flatten(b)
	all := maps.Clone(of)
	maps.Copy(all, other)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if unquote(of[path]) != unquote(other[path]) {
			paths = append(paths, path)
		}
	}
	return paths
}
