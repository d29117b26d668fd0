// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

const (
	// sweep is the time between two looks at everything where the kernel reports
	// changes: it does not report those through another name of a file.
	sweep = 10 * time.Second

	// quick is how long a file must stay as it is that its writer has closed.
	quick = 50 * time.Millisecond
)

// Look looks at all files, and passes what differs to the tracker.
func (f *FileSource) Look() {
	f.begin()
	defer f.showFaults()
	if !f.list() {
		return
	}
	var names []string
	for name, file := range f.files {
		if info, err := os.Lstat(name); !file.stable() || err != nil || !file.state.unchanged(info) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	f.lookAt(names)
}

// lookAtPending looks at the files that may have changed since the last look.
func (f *FileSource) lookAtPending() {
	f.begin()
	defer f.showFaults()
	if now := f.now(); now.Sub(f.folder.seen) >= f.settings.Interval && !f.check(now) {
		return
	}
	var names []string
	for name := range f.pending {
		if !f.files[name].due.After(f.now()) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	f.lookAt(names)
}

func (f *FileSource) begin() {
	if f.begun.IsZero() {
		f.begun = f.now()
	}
}

// check has everything looked at when the folder is another than the one watched.
func (f *FileSource) check(now time.Time) bool {
	l := stat(f.path)
	f.folder.seen = now
	if l.err == nil && l.folder.same(f.folder) {
		return true
	}
	f.full = now
	if l.err != nil {
		f.unreadable(l.err)
	}
	return false
}

// list finds out which files there are.
func (f *FileSource) list() bool {
	now := f.now()
	l := list(f.path, f.notify)
	f.full = now.Add(f.settings.Interval)
	f.folder.seen = now
	if l.err != nil {
		f.unreadable(l.err)
		return false
	}
	if l.folder.watched {
		f.full = now.Add(max(sweep, f.settings.Interval))
	}
	l.folder.seen = now
	f.fault, f.folder = "", l.folder
	there := make(map[string]bool, len(l.names))
	for _, name := range l.names {
		there[name] = true
		if f.files[name] == nil {
			f.files[name] = &file{}
		}
		f.files[name].link = l.links[name]
	}
	for name := range f.files {
		if !there[name] {
			f.drop(name)
		}
	}
	return true
}

// drop forgets a file that is gone. What it said is removed once it is missed for long.
func (f *FileSource) drop(name string) {
	f.changed = f.changed || f.files[name].known
	delete(f.files, name)
	delete(f.pending, name)
}

// unreadable keeps everything as it is, and says so once.
func (f *FileSource) unreadable(err error) {
	if f.fault != err.Error() {
		f.fault = err.Error()
		f.warn(SourceUnreadable, f.path, fmt.Sprintf("%v; what it said stays in force", err))
	}
}

// lookAt looks at those files, and then passes what differs to the tracker.
func (f *FileSource) lookAt(names []string) {
	for _, name := range names {
		f.read(name)
	}
	now := f.now()
	f.lookForUnsettled(now)
	if missed := f.nextMissed(); f.changed || !missed.IsZero() && !missed.After(now) {
		f.changed = false
		f.merge(now)
	}
	if !f.synced && f.ready(now) {
		f.synced = true
		f.tracker.Synced()
	}
}

// lookForUnsettled reports the files that change too often to be read.
func (f *FileSource) lookForUnsettled(now time.Time) {
	for name := range f.pending {
		file := f.files[name]
		if began := file.draft.began; file.trouble == nil && !began.IsZero() && now.Sub(began) > f.settings.Interval+stale {
			f.troubled(file, Fault{File: name, Line: 1, Message: "it is written to again and again, and never found the same twice; what it said stays in force: write another file and rename it"})
		}
	}
}

// ready reports whether each file has been read, or has had its time for it.
func (f *FileSource) ready(now time.Time) bool {
	for name := range f.pending {
		file := f.files[name]
		if !file.known && file.trouble == nil && now.Sub(f.begun) < f.settings.Interval+stale {
			return false
		}
	}
	return true
}

func (f *FileSource) read(name string) {
	file, begun := f.files[name], f.now()
	file.news, file.looked = false, begun
	before := file.state
	if !file.draft.since.IsZero() {
		before = fileState{}
	}
	seen := readFile(name, before)
	now := f.now()
	switch {
	case errors.Is(seen.err, fs.ErrNotExist) && !seen.there && f.folder.only != "":
		f.full = now // the one file is missing, which list reports
	case errors.Is(seen.err, fs.ErrNotExist) && !seen.there:
		f.drop(name)
		return
	case seen.err != nil:
		file.draft = draft{}
		f.troubled(file, Fault{File: name, Line: 1, Message: fmt.Sprintf("reading: %v; what it said stays in force", seen.err)})
	case seen.same:
		file.trouble, file.event = nil, ordinary
	default:
		f.decide(name, file, seen, begun)
	}
	f.rest(name, file, seen, now)
}

// troubled notes why a file cannot be read, and says so when that is new.
func (f *FileSource) troubled(file *file, fault Fault) {
	if file.trouble == nil || *file.trouble != fault {
		f.say(fault)
	}
	file.trouble = &fault
}

// decide decides whether content that was read counts.
func (f *FileSource) decide(name string, file *file, seen found, begun time.Time) {
	now := f.now()
	switch {
	case file.known && seen.hash == file.hash:
		file.draft, file.trouble, file.event, file.state = draft{}, nil, ordinary, seen.state
	case file.complete(seen, begun, f.settings.Interval) && !f.writtenMeanwhile(file):
		before := file.faults
		file.accept(name, seen)
		f.changed = true
		for _, fault := range file.faults {
			if !slices.Contains(before, fault) {
				f.say(fault)
			}
		}
		return
	default:
		file.draft, file.state = file.draft.next(seen.hash, now), fileState{}
	}
}

// writtenMeanwhile reports whether the file was written to while it was read.
func (f *FileSource) writtenMeanwhile(file *file) bool {
	news := f.notify.take()
	f.onNews(news)
	return news.all || file.news && (file.event == written || file.event == closed)
}

// rest decides when to look at the file again.
func (f *FileSource) rest(name string, file *file, seen found, now time.Time) {
	file.link = seen.link || file.link && !seen.there
	switch {
	case file.news: // while it was read
	case !file.draft.since.IsZero():
		file.due = latest(now.Add(quick/2), file.draft.since.Add(file.gap(f.settings.Interval)))
	case file.trouble != nil || !file.known || seen.unwatched(f.folder):
		file.due = now.Add(f.settings.Interval)
	default:
		delete(f.pending, name)
		return
	}
	f.pending[name] = true
}

// onNews notes what the kernel reports as changed.
func (f *FileSource) onNews(n news) {
	now := f.now()
	if n.all {
		f.full = now
	}
	for name, what := range n.names {
		if !f.folder.mine(name) {
			continue
		}
		if f.files[name] == nil {
			f.files[name] = &file{link: true} // for all that is known
		}
		f.files[name].onEvent(what, now, f.settings.Interval)
		f.pending[name] = true
	}
	if n.swapped {
		for name := range f.pending {
			if file := f.files[name]; file.link {
				file.onEvent(closed, now, f.settings.Interval)
			}
		}
	}
}
