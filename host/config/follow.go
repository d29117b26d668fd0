// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
)

// A Follower keeps a running host's settings as its file says. It reads the file again and
// again instead of waiting for a notification, which is lost when a file is replaced; a
// ConfigMap is replaced by moving a symlink.
type Follower struct {
	flags *pflag.FlagSet
	now   func() time.Time

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
	Hash    string    // of the content that was applied last
	Loaded  time.Time // when that was
	Applied []string  // fields that this look changed
	Pending []string  // fields that the file has otherwise, and that need a restart
	Err     error     // the file as it is now cannot be used; the settings stay as they are
	Since   time.Time // of Err
}

// Follow returns a Follower that starts with h, as Load returned it with the same flags. now is the
// clock, such as time.Now.
func Follow(h *Host, flags *pflag.FlagSet, now func() time.Time) *Follower {
	f := &Follower{flags: flags, now: now, seen: h.From.hash, handled: h.From.hash}
	f.state.Store(&State{Host: h, Hash: h.From.hash, Loaded: now()})
	return f
}

// Run looks at the file each period, and at once when reload says that the file is complete, until ctx
// ends. It calls changed, one call at a time, for each look that led to something or that reload asked for.
func (f *Follower) Run(ctx context.Context, period time.Duration, reload <-chan os.Signal, changed func(State)) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		complete := false
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
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
	if path == "" {
		s.Err = errors.New("there is no config file to read again")
		return s, complete
	}
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
		s.Since = f.now()
	}
	if s.Applied, s.Err = nil, err; err == nil {
		s.Hash, s.Loaded, s.Since = found, f.now(), time.Time{}
		s.Host, s.Applied, s.Pending = apply(s.Host, wanted)
	}
	f.state.Store(&s)
	return s, true
}

// hashOf returns a short text that differs for each content of a file.
func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// InUse returns the modes that the file's may stand for.
func InUse(mode string) []string {
	if mode == Auto {
		return []string{"iptables", "nftables"}
	}
	return []string{mode}
}

// live are the fields that can change in a running host, beside those of plugins.
var live = []string{"mode", "logging.level", "syncPeriod", "minSyncPeriod", "nodePortAddresses", "swap.drainTimeout"}

// isLive reports whether the field at path can change while running runs. A plugin that is not in use is
// launched with what the file says then; of one that is in use the options can change, unless its address does.
func isLive(path string, running, wanted *Host) bool {
	of, isPlugin := strings.CutPrefix(path, "plugins.")
	name, field, _ := strings.Cut(of, ".")
	switch {
	case !isPlugin:
		return slices.Contains(live, path)
	case !slices.Contains(InUse(running.Mode), name):
		return true
	}
	return strings.HasPrefix(field, "options") && running.Plugins[name].Address == wanted.Plugins[name].Address
}

// apply returns running with the live fields of wanted, which of them changed, and which other fields
// differ and need a restart.
func apply(running, wanted *Host) (next *Host, applied, pending []string) {
	next = &Host{From: wanted.From}
	next.From.values = maps.Clone(wanted.From.values)
	all := maps.Clone(running.From.values)
	maps.Copy(all, wanted.From.values)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		is := running.From.values[path]
		switch {
		case bytes.Equal(is, wanted.From.values[path]):
		case isLive(path, running, wanted):
			applied = append(applied, path)
		default:
			pending = append(pending, path)
			next.From.values[path] = is
		}
	}
	next.build()
	return next, applied, pending
}
