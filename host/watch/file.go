// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxFile bounds what is read: a hundred thousand endpoints are a quarter of it.
const maxFile = 128 << 20

// settled is the age from which on a file's time of change can be trusted to
// differ when the file does.
const settled = 2 * time.Second

// A file is what one file says, and what is known of how it changes.
type file struct {
	known   bool // it has been read
	hash    sum
	objects []Object // also those that it defined before it held a fault
	faults  []Fault
	parts   map[sum]Manifest

	state   fileState // of the last read
	draft   draft     // content that was found and does not count yet
	trouble *Fault    // why it cannot be read now
	link    bool
	event   event // the last that the kernel reported
	news    bool  // since the last look began
	looked  time.Time
	due     time.Time // when to look again, if it is among the pending
}

// A draft is content that a look found and that does not count yet.
type draft struct {
	hash  sum
	since time.Time // when it was found first; zero: there is none
	began time.Time // since when the file differs from what counts
}

// next returns the draft after a look that found hash.
func (d draft) next(hash sum, now time.Time) draft {
	if d.began.IsZero() {
		d.began = now
	}
	if d.since.IsZero() || d.hash != hash {
		d.hash, d.since = hash, now
	}
	return d
}

// An event is what happened to a file last, as the kernel reports it.
type event int

const (
	ordinary event = iota
	written        // and may be in the middle of that
	closed         // by one that wrote
	touched        // its mode, owner or times
	moved          // renamed into place, so it is whole
	gone
)

func (f *file) onEvent(e event, now time.Time, interval time.Duration) {
	if e == touched && f.event == written {
		e = written
	} else if e == touched {
		e = closed
	}
	f.event, f.news = e, true
	f.draft.since = time.Time{}
	if f.draft.began.IsZero() {
		f.draft.began = now
	}
	switch e {
	case written:
		f.due = now.Add(interval)
	case closed:
		f.due = now.Add(quick)
	default:
		f.due = now
		if soonest := f.looked.Add(quick); soonest.After(now) {
			f.due = soonest
		}
	}
}

// gap returns how long content must stay before it counts. A next writer empties the file
// before the kernel reports that it does: by more than quick, where the disk is busy.
func (f *file) gap(interval time.Duration) time.Duration {
	switch {
	case f.event == moved:
		return 0
	case f.event == closed && f.draft.hash != emptied:
		return quick
	}
	return interval
}

// emptied is the hash of a file without content.
var emptied sum = sha256.Sum256(nil)

// complete reports whether content counts that a look found: it was renamed into
// place, or an earlier look found the same; or, before anything is known, the file
// system says that it has been so for long.
func (f *file) complete(seen found, begun time.Time, interval time.Duration) bool {
	switch {
	case f.event == moved:
		return true
	case !f.known && f.event != written && !seen.changed.IsZero() && begun.Sub(seen.changed) >= interval:
		return true
	}
	return !f.draft.since.IsZero() && f.draft.hash == seen.hash && begun.Sub(f.draft.since) >= f.gap(interval)
}

func (f *file) accept(name string, seen found) {
	m, parts := parse(name, seen.data, f.parts)
	before := f.objects
	f.known, f.hash, f.state, f.parts = true, seen.hash, seen.state, parts
	f.objects, f.faults = m.Objects, m.Faults
	if slices.ContainsFunc(f.faults, func(f Fault) bool { return !f.Note }) {
		f.objects = append(f.objects, missing(before, f.objects)...)
	}
	f.draft, f.trouble = draft{}, nil
	if !f.news {
		f.event = ordinary
	}
}

// stable reports whether the file was read, and nothing has happened to it since.
func (f *file) stable() bool {
	return f.known && !f.link && f.trouble == nil && f.event == ordinary && f.draft == draft{}
}

// missing returns the objects of before that now lacks.
func missing(before, now []Object) []Object {
	have := make(map[ID]bool, len(now))
	for _, o := range now {
		have[o.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(before), func(o Object) bool { return have[o.ID] })
}

// A fileState tells one state of a file from another without reading it.
type fileState struct {
	info os.FileInfo
	read time.Time
}

// unchanged reports whether the file cannot have changed since it was read.
func (s fileState) unchanged(info os.FileInfo) bool {
	return s.info != nil && os.SameFile(s.info, info) && s.info.Size() == info.Size() &&
		changedAt(s.info).Equal(changedAt(info)) && s.info.ModTime().Equal(info.ModTime()) &&
		s.read.Sub(latest(info.ModTime(), changedAt(info))) > settled
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// found is what a look at a file found.
type found struct {
	there   bool // there is such a name, though it may lead nowhere
	link    bool
	state   fileState
	same    bool      // as before: it was not read
	changed time.Time // when, by this machine's clock; zero: not known
	data    []byte
	hash    sum
	err     error
}

// readFile reads a file if it may differ from before.
func readFile(name string, before fileState) (seen found) {
	info, err := os.Lstat(name)
	seen.there = err == nil
	if err == nil && info.Mode()&os.ModeSymlink != 0 {
		seen.link = true
		info, err = os.Stat(name)
	}
	if seen.err = err; err != nil {
		return seen
	}
	if seen.same = before.unchanged(info); seen.same {
		seen.state = before
		return seen
	}
	seen.state = fileState{info: info, read: time.Now()}
	switch {
	case !info.Mode().IsRegular(): // a pipe or a device could keep the source waiting
		seen.err = errors.New("it is no regular file")
	case info.Size() > maxFile:
		seen.err = fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	default:
		seen.data, seen.err = os.ReadFile(name)
	}
	if seen.err != nil {
		return seen
	}
	seen.hash = sha256.Sum256(seen.data)
	if clockIsOurs(name) {
		seen.changed = latest(info.ModTime(), changedAt(info))
	}
	return seen
}

// A folder is where the manifests are.
type folder struct {
	dir     string
	only    string      // the one file of it that is read; empty: all manifests
	info    os.FileInfo // of dir
	watched bool        // the kernel tells of changes in it
	seen    time.Time   // when it was last looked at
}

// same reports whether f is still the folder that g was.
func (f folder) same(g folder) bool {
	return g.info != nil && f.dir == g.dir && f.only == g.only && os.SameFile(f.info, g.info)
}

// mine reports whether name is that of a file to read.
func (f folder) mine(name string) bool {
	if filepath.Dir(name) != f.dir {
		return false
	}
	if f.only != "" {
		return name == f.only
	}
	return manifest(filepath.Base(name))
}

// A listing is a folder and what is in it.
type listing struct {
	folder
	names []string
	links map[string]bool // of names
	err   error
}

// stat looks at the folder of path alone.
func stat(path string) (l listing) {
	l.dir = path
	if l.info, l.err = os.Stat(path); l.err == nil && !l.info.IsDir() {
		l.dir, l.only = filepath.Dir(path), path
		l.info, l.err = os.Stat(l.dir)
	}
	return l
}

// list has the folder of path watched, and then lists the files that path stands for.
func list(path string, n *notifier) listing {
	l := stat(path)
	if l.err != nil {
		return l
	}
	l.watched = n.watch(l.dir)
	if l.only != "" {
		l.names = []string{l.only}
		return l
	}
	l.links = make(map[string]bool)
	entries, err := os.ReadDir(path) // sorted
	if l.err = err; err != nil {
		return l
	}
	for _, e := range entries {
		if !manifest(e.Name()) {
			continue
		}
		name := filepath.Join(path, e.Name())
		l.names = append(l.names, name)
		if e.Type()&os.ModeSymlink != 0 {
			l.links[name] = true
		}
	}
	return l
}

func manifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// news is what the kernel says has changed in the folder that is watched.
type news struct {
	names   map[string]event // the last of each name
	swapped bool             // a hidden name that links may lead through was replaced
	all     bool             // look at everything: events may have been lost
}
