// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// A Follower keeps a running host's settings as its file says. It looks and
// compares instead of waiting to be told: a notification is lost when a file is
// replaced, and a ConfigMap is replaced by moving a symlink.
type Follower struct {
	path  string
	flags *pflag.FlagSet
	now   func() time.Time
	asked chan struct{} // Reload was called; of one

	// Check says why a file cannot be taken that has no other fault; nil: it is not asked. It is set
	// before Run.
	Check func(wanted *Host) error

	mu      sync.Mutex // guards what follows
	host    *Host      // in force
	seen    string     // what the last look found: a hash or an error
	handled string     // what was last acted upon
	status  Status
}

// A Change is what one look at the file came to.
type Change struct {
	Host    *Host    // in force from now on
	Applied []string // fields that changed, and can change in a running host
	Pending []string // fields that the file has otherwise, and need a restart
	Err     error    // the file cannot be used; the settings go on as they are
}

// A Status says how a host stands to its file.
type Status struct {
	Path       string
	Hash       string    // of the content that was last taken in
	Loaded     time.Time // when that was
	Stale      string    // why the file as it is now was not taken in; empty: it was
	StaleSince time.Time
	Pending    []string // fields that need a restart to be as the file says
}

// Follow begins at h, as Load returned it with the same flags. now is the clock,
// such as time.Now.
func Follow(h *Host, flags *pflag.FlagSet, now func() time.Time) *Follower {
	return &Follower{
		path: h.Path(), flags: flags, now: now, asked: make(chan struct{}, 1),
		host: h, seen: h.Hash(), handled: h.Hash(),
		status: Status{Path: h.Path(), Hash: h.Hash(), Loaded: now()},
	}
}

// Run looks each period until ctx ends, and calls changed, one call at a time,
// for each look that came to something or that Reload asked for.
func (f *Follower) Run(ctx context.Context, period time.Duration, changed func(Change)) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if c, ok := f.Look(); ok {
				changed(c)
			}
		case <-f.asked:
			changed(f.lookNow())
		}
	}
}

// Reload has Run look at once, and call changed whatever it finds. It does not wait for that.
func (f *Follower) Reload() {
	select {
	case f.asked <- struct{}{}:
	default: // Run is about to
	}
}

// Host returns the settings in force.
func (f *Follower) Host() *Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.host
}

// Status returns how the host stands to its file.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Look reads the file once and says whether that came to something. What it finds
// counts when a second look finds the same, because the first may have met an
// editor in the middle of writing.
func (f *Follower) Look() (c Change, ok bool) {
	if f.path == "" {
		return Change{}, false
	}
	data, found, err := f.read()
	f.mu.Lock()
	settled := found == f.seen
	f.seen = found
	due := settled && found != f.handled
	f.mu.Unlock()
	if !due {
		return Change{}, false
	}
	return f.take(data, found, err), true
}

// lookNow reads the file once, and takes what it finds: a user says that it is whole.
func (f *Follower) lookNow() Change {
	if f.path == "" {
		return Change{Host: f.Host(), Err: errors.New("there is no config file to read again")}
	}
	data, found, err := f.read()
	f.mu.Lock()
	f.seen = found
	f.mu.Unlock()
	return f.take(data, found, err)
}

// take brings into force what the file was found to be, or what of it can be. The lock is not held
// while Check asks: status is to be had meanwhile.
func (f *Follower) take(data []byte, found string, err error) Change {
	var wanted *Host
	if err == nil {
		wanted, err = load(f.path, data, f.flags)
	}
	if err == nil && f.Check != nil {
		err = f.Check(wanted)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handled = found
	if err != nil {
		return f.refuse(err)
	}
	host, applied, pending := adopt(f.host, wanted)
	f.host = host
	f.status = Status{Path: f.path, Hash: host.Hash(), Loaded: f.now(), Pending: pending}
	return Change{Host: host, Applied: applied, Pending: pending}
}

// refuse leaves everything as it is, and says why.
func (f *Follower) refuse(err error) Change {
	if f.status.Stale == "" {
		f.status.StaleSince = f.now()
	}
	f.status.Stale = err.Error()
	return Change{Host: f.host, Pending: f.status.Pending, Err: err}
}

// read reads the file again while the host runs, and says what tells one finding from another: a hash or an error.
func (f *Follower) read() (data []byte, found string, err error) {
	data, err = readFile(f.path)
	if err != nil {
		return nil, err.Error(), err
	}
	return data, hashOf(data), nil
}

// hashOf tells one content from another; empty: there was no file.
func hashOf(data []byte) string {
	if data == nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// Live reports whether a running host can change the field at path. The options of a plugin it can,
// unless that runs by itself.
func Live(path string) bool {
	return isOptions(path) || slices.Contains([]string{"mode", "logging.level", "syncPeriod", "minSyncPeriod", "nodePortAddresses", "swap.drainTimeout", "swap.onFailure"}, path)
}

func isOptions(path string) bool {
	return strings.HasPrefix(path, "plugins.") && leafName(path) == "options"
}

// spare reports whether path belongs to a plugin that is not in use, which is
// launched with what the file says then.
func spare(path, mode string) bool {
	name, ours := strings.CutPrefix(path, "plugins.")
	return ours && !slices.Contains(InUse(mode), name[:max(0, strings.LastIndexByte(name, '.'))])
}

// InUse returns the modes that the file's may stand for.
func InUse(mode string) []string {
	if mode == Auto {
		return []string{"iptables", "nftables"}
	}
	return []string{mode}
}

// adopt returns what becomes of running when its file says wanted: the host with the
// live fields of wanted, which of them are other than before, and which fields
// are other in wanted but must wait for a restart.
func adopt(running, wanted *Host) (h *Host, applied, pending []string) {
	next := *running
	next.from = wanted.from
	next.from.origins = maps.Clone(wanted.from.origins)
	next.Plugins = maps.Clone(wanted.Plugins)
	live := make(map[string]bool)
	for _, path := range differences(running, wanted) {
		live[path] = Live(path) || spare(path, running.Mode)
	}
	for _, mode := range InUse(running.Mode) {
		as, to := running.Plugins[mode], wanted.Plugins[mode]
		if as.Address == "" && to.Address == "" {
			as.Options = to.Options
		} else {
			live["plugins."+mode+".options"] = false
		}
		if next.Plugins[mode] = as; reflect.DeepEqual(as, Plugin{}) {
			delete(next.Plugins, mode)
		}
	}
	from := make(map[string]reflect.Value)
	for _, f := range fields(wanted) {
		from[f.path] = f.value
	}
	for _, f := range fields(&next) {
		switch {
		case isOptions(f.path) && live[f.path]: // it is there already
		case Live(f.path) && !isOptions(f.path):
			f.value.Set(from[f.path])
		case !spare(f.path, running.Mode):
			next.from.origins[f.path] = running.Origin(f.path)
		}
	}
	for _, path := range differences(running, wanted) {
		if live[path] {
			applied = append(applied, path)
		} else {
			pending = append(pending, path)
		}
	}
	return &next, applied, pending
}

// differences returns the fields that are not the same in a and b, in the order of
// fields, those that only one of them has at the end.
func differences(a, b *Host) []string {
	before, after := plainByPath(a), plainByPath(b)
	var paths []string
	for _, s := range slices.Concat(a.Settings(), b.Settings()) {
		if !slices.Contains(paths, s.Field) && !reflect.DeepEqual(before[s.Field], after[s.Field]) {
			paths = append(paths, s.Field)
		}
	}
	return paths
}

func plainByPath(h *Host) map[string]any {
	all := make(map[string]any)
	for _, s := range h.Settings() {
		all[s.Field] = s.Value
	}
	return all
}
