// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"errors"
	"reflect"
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

	mu     sync.Mutex // guards what follows
	host   *Host      // in force
	seen   []byte     // the content at the last look
	failed string     // what was wrong at the last look, with reading or content
	status Status
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
	Hash       string    // of the content in force
	Loaded     time.Time // when that was read
	Stale      string    // why the file as it is now is not in force; empty: it is
	StaleSince time.Time
	Pending    []string // fields that need a restart to be as the file says
}

// Follow begins at h, as Load returned it with the same flags. now is the clock.
func Follow(h *Host, flags *pflag.FlagSet, now func() time.Time) *Follower {
	return &Follower{
		path: h.Path(), flags: flags, now: now, host: h,
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

// Host is the settings in force.
func (f *Follower) Host() *Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.host
}

// Status is how the host stands to its file.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Look reads the file once and says whether that came to something. New content
// counts from the second look that finds it, because the first may have met an
// editor in the middle of writing; so does a file that cannot be used.
func (f *Follower) Look() (Change, bool) {
	if f.path == "" {
		return Change{}, false
	}
	data, err := readFile(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	settled := err == nil && f.failed == "" && bytes.Equal(data, f.seen)
	_ = settled
	_ = errors.Is
	_ = reflect.DeepEqual
	return Change{}, false
}
