// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	Interval time.Duration      // between two looks; zero: a second
	Report   func(track.Notice) // nil: nobody is told
}

// A FileSource keeps a tracker true to a file or a folder of manifests.
type FileSource struct {
	path     string
	tracker  *track.Tracker
	settings FileSettings

	looked bool            // at least once
	fault  string          // why the last look saw nothing
	files  map[string]file // by name, as last read
	merged

	mu     sync.Mutex // guards faults
	faults []Fault    // after the last look
}

// Files is the source that reads path: a file, or a folder, of which it reads the
// .yaml, .yml and .json files, but not those in folders below, and not those
// whose names begin with a dot. Nothing happens before Run.
func Files(path string, t *track.Tracker, s FileSettings) *FileSource {
	if s.Interval <= 0 {
		s.Interval = time.Second
	}
	if s.Report == nil {
		s.Report = func(track.Notice) {}
	}
	return &FileSource{path: path, tracker: t, settings: s, files: make(map[string]file), merged: newMerged()}
}

// Run looks at the files until ctx ends. The tracker is synced after the first
// look that saw them.
func (f *FileSource) Run(ctx context.Context) error {
	tick := time.NewTicker(f.settings.Interval)
	defer tick.Stop()
	for {
		f.Look()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Look looks once, and tells the tracker what differs. Run calls it; it is not for
// use beside Run.
func (f *FileSource) Look() {
	defer f.showFaults()
	names, err := list(f.path)
	if err != nil {
		f.unreadable(err)
		return
	}
	f.fault = ""
	changed := false
	for _, name := range names {
		changed = f.read(name) || changed
	}
	for name := range f.files {
		if !slices.Contains(names, name) {
			delete(f.files, name)
			changed = true
		}
	}
	if changed || f.doubtful() {
		f.merge(names)
	}
	if !f.looked {
		f.looked = true
		f.tracker.Synced()
	}
}

// Faults are what is wrong in the files now, in their order. It may be called
// beside Run.
func (f *FileSource) Faults() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults
}

// showFaults makes Faults tell what the last look found.
func (f *FileSource) showFaults() {
	var faults []Fault
	if f.fault != "" {
		faults = append(faults, Fault{File: f.path, Message: f.fault})
	}
	for _, file := range f.files {
		for _, fault := range file.faults {
			if !fault.Note {
				faults = append(faults, fault)
			}
		}
	}
	faults = slices.AppendSeq(faults, maps.Values(f.clashes))
	faults = slices.AppendSeq(faults, maps.Values(f.orphans))
	slices.SortFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Message, b.Message))
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
}

// unreadable keeps everything as it is, and says so once.
func (f *FileSource) unreadable(err error) {
	if f.fault != err.Error() {
		f.fault = err.Error()
		f.warn(SourceUnreadable, f.path, fmt.Sprintf("%v; what it said stays in force", err))
	}
}

// list names the files that path stands for, in order.
func list(path string) ([]string, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path) // sorted
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if manifest(e.Name()) {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	return names, nil
}

func manifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// read reads one file if it may be another than before, and reports whether it
// is.
func (f *FileSource) read(name string) bool {
	before := f.files[name]
	now, err := readFile(name, before)
	if err != nil {
		now = before
		now.faults = []Fault{{File: name, Line: 1, Message: fmt.Sprintf("reading: %v; what it said stays in force", err)}}
	}
	for _, fault := range now.faults {
		if !slices.Contains(before.faults, fault) {
			f.say(fault)
		}
	}
	f.files[name] = now
	return now.hash != before.hash
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
