// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/track"
)

// The reasons of this package's notices.
const (
	SourceUnreadable = "SourceUnreadable" // the file or folder cannot be read; what it said stays in force
	ManifestInvalid  = "ManifestInvalid"
	ManifestNote     = "ManifestNote"
	DefinedTwice     = "DefinedTwice" // two files define one object
)

// FileSettings are how a files source goes about it.
type FileSettings struct {
	Interval time.Duration // between two looks; zero: a second
	Report   func(track.Notice)
}

// A FileSource keeps a tracker true to a file or a folder of manifests.
type FileSource struct {
	path     string
	tracker  *track.Tracker
	settings FileSettings
	now      func() time.Time
	notify   *notifier // of changes in the folder; nil: there is none

	begun   time.Time // when it looked first
	synced  bool
	folder  folder           // as last listed
	fault   string           // why the last look saw nothing
	files   map[string]*file // by name
	pending map[string]bool  // of files, those to look at before the next full look
	full    time.Time        // when all is to be looked at next

	tracked map[ID]sum       // what the tracker has from the files
	missed  map[ID]time.Time // of that, what is in no file since then
	changed bool             // a file says something else than when last merged
	clashes map[ID]Fault     // objects that two files define
	orphans map[ID]Fault     // slices whose Service no file defines

	mu     sync.Mutex // guards what follows
	faults []Fault    // after the last look
	ended  time.Time  // of the last look; zero: none has
	pods   [][]Pod    // that the manifests name, slice by slice, in no order
}

// Files returns the source that reads path: a file, or a folder, of which it reads the
// .yaml, .yml and .json files, but not those in folders below, and not those
// whose names begin with a dot. Nothing happens before Run.
func Files(path string, t *track.Tracker, s FileSettings) *FileSource {
	if s.Interval <= 0 {
		s.Interval = time.Second
	}
	return &FileSource{
		path: filepath.Clean(path), tracker: t, settings: s, now: time.Now,
		files: make(map[string]*file), pending: make(map[string]bool),
		tracked: make(map[ID]sum), missed: make(map[ID]time.Time),
	}
}

// Run follows the files until ctx ends. The tracker is synced after the first looks
// that saw them.
func (f *FileSource) Run(ctx context.Context) error {
	f.notify = newNotifier()
	defer f.notify.close()
	f.mu.Lock()
	f.ended = time.Now()
	f.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-f.notify.news():
		}
		f.onNews(f.notify.take())
		if f.now().Before(f.full) {
			f.lookAtPending()
		} else {
			f.Look()
		}
		timer.Reset(f.wake().Sub(f.now()))
	}
}

// wake returns when to look again at the latest.
func (f *FileSource) wake() time.Time {
	next := f.full
	if check := f.folder.seen.Add(f.settings.Interval); check.Before(next) {
		next = check
	}
	for name := range f.pending {
		if due := f.files[name].due; due.Before(next) {
			next = due
		}
	}
	if missed := f.nextMissed(); !missed.IsZero() && missed.Before(next) {
		next = missed
	}
	return next
}

// Faults returns what is wrong in the files now, in their order. It may be called
// beside Run.
func (f *FileSource) Faults() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if late := time.Since(f.ended); !f.ended.IsZero() && late > f.settings.Interval+stale {
		return append([]Fault{{File: f.path, Message: fmt.Sprintf("no look at the manifests has ended for %s; what they said stays in force", late.Round(time.Second))}}, f.faults...)
	}
	return f.faults
}

// stale is how long a file, or all of them, may be without a look that ended before
// that is shown.
const stale = 4 * time.Second

// maxFaults is how many faults are shown of one file, and of all.
const maxFaults = 100

// showFaults makes Faults tell what the last look found.
func (f *FileSource) showFaults() {
	var faults []Fault
	if f.fault != "" {
		faults = append(faults, Fault{File: f.path, Message: f.fault})
	}
	for _, file := range f.files {
		if file.trouble != nil {
			faults = append(faults, *file.trouble)
		}
		for _, fault := range file.faults {
			if !fault.Note {
				faults = append(faults, fault)
			}
		}
	}
	faults = slices.AppendSeq(faults, maps.Values(f.clashes))
	faults = slices.AppendSeq(faults, maps.Values(f.orphans))
	slices.SortFunc(faults, Fault.compare)
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults], Fault{File: f.path, Message: fmt.Sprintf("and %d more", more)})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.ended = faults, time.Now()
}

func (f *FileSource) say(fault Fault) {
	if fault.Note {
		f.settings.Report(track.Notice{Reason: ManifestNote, Object: fault.File, Message: fault.Error()})
		return
	}
	f.warn(ManifestInvalid, fault.File, fault.Error())
}

func (f *FileSource) warn(reason, object, message string) {
	f.settings.Report(track.Notice{Warning: true, Reason: reason, Object: object, Message: message})
}
