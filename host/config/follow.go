// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/pointsman/pointsman/host/bounded"
)

// A Follower keeps a running host's settings as its file says. It looks and
// compares instead of waiting to be told: a notification is lost when a file is
// replaced, and a ConfigMap is replaced by moving a symlink.
type Follower struct {
	path  string
	flags *pflag.FlagSet
	now   func() time.Time
	calls bounded.Caller[string, answer] // of the looks, which follow one another

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
		path: h.Path(), flags: flags, now: now,
		host: h, seen: h.Hash(), handled: h.Hash(),
		status: Status{Path: h.Path(), Hash: h.Hash(), Loaded: now()},
	}
}

// Run looks each period until ctx ends, and calls changed, one call at a time,
// for each look that came to something.
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
		}
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
	data, err := f.read()
	found := hashOf(data)
	if err != nil {
		found = err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	settled := found == f.seen
	f.seen = found
	if !settled || found == f.handled {
		return Change{}, false
	}
	f.handled = found
	if err != nil {
		return f.refuse(err), true
	}
	return f.take(data), true
}

// take brings the file's content into force, or what of it can be.
func (f *Follower) take(data []byte) Change {
	wanted, err := load(f.path, data, f.flags)
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
