// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/pointsman/pointsman/host/track"
)

const (
	settle    = 50 * time.Millisecond // delay of the poll after a change that the kernel reports
	maxFile   = 128 << 20             // bytes
	maxFaults = 100                   // per file
)

// A FileSource keeps a tracker up to date with a file or a folder of manifests.
//
// It polls each second, and earlier if the kernel reports a change. It reads a changed file once the file has not
// changed for a second, because a program may still be writing it; it reads a file that was renamed into place at once.
// A file counts as deleted once it has been missing for a second. A file that cannot be read, or has a fault, removes
// no objects.
type FileSource struct {
	path    string
	dir     string // the folder of the files
	tracker *track.Tracker
	sinks   map[string]sink // pass objects to the tracker
	report  func(track.Notice)
	every   time.Duration // time between two polls

	files   map[string]*file // by name
	tracked map[id]*object   // the objects that the tracker has
	changed bool             // a file was accepted or deleted after the last merge
	synced  bool
	clashes []Fault // objects that several files define

	faults atomic.Pointer[[]Fault] // as of the last poll
}

// A file is the state of one manifest file.
type file struct {
	info    os.FileInfo // state of the file when it was accepted; nil if it was not accepted yet
	objects []object
	faults  []Fault

	next os.FileInfo // state of the file at the last poll; nil if it is missing
	seen time.Time   // when next was first seen
}

// Files returns a source that reads path: a file, or a folder, of which it reads the .yaml, .yml and .json files whose
// names do not begin with a dot. The source has no effects before Run.
func Files(path string, t *track.Tracker, report func(track.Notice)) *FileSource {
	f := &FileSource{path: filepath.Clean(path), tracker: t, sinks: sinks(t), report: report, every: time.Second, files: make(map[string]*file)}
	f.faults.Store(new([]Fault))
	return f
}

// Run follows the files until ctx ends. The tracker is synced once each file was read, or cannot be read.
func (f *FileSource) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewBufferedWatcher(1024)
	if err != nil { // the kernel limits the number of watchers per user
		watcher = &fsnotify.Watcher{}
	} else {
		defer watcher.Close()
	}
	poll, due := time.NewTimer(0), time.Now()
	defer poll.Stop()
	_, _ = f.list()                  // sets dir; the first poll reports errors
	renamed := make(map[string]bool) // by name of the files that changed since the last poll: the file was renamed to this name and not written after that
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watcher.Errors: // such as lost events
		case e := <-watcher.Events:
			name := filepath.Clean(e.Name)
			renamed[name] = e.Has(fsnotify.Create) || renamed[name] && !e.Has(fsnotify.Write)
			poll.Reset(min(settle, time.Until(due)))
		case <-poll.C:
			if err == nil { // watch before the poll, so that no change between them is missed
				_ = watcher.Add(f.dir) // again each time, because path may be a link to another folder now; after an error polls are enough
			}
			f.poll(time.Now(), renamed)
			clear(renamed)
			due = time.Now().Add(f.every)
			poll.Reset(f.every)
		}
	}
}

// list returns the names of the files to read.
func (f *FileSource) list() (names []string, err error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	if f.dir = f.path; !info.IsDir() {
		f.dir = filepath.Dir(f.path)
		return []string{f.path}, nil
	}
	entries, err := os.ReadDir(f.path)
	for _, e := range entries {
		if name := e.Name(); name[0] != '.' && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			names = append(names, filepath.Join(f.path, name))
		}
	}
	return names, err
}

// poll looks at all files, passes changes to the tracker, and reports new faults. The tracker is synced once every file
// was read or cannot be read.
func (f *FileSource) poll(now time.Time, renamed map[string]bool) {
	var faults []Fault
	stays := func(name, reason string, err error) {
		faults = append(faults, Fault{name, 0, reason, err.Error() + "; the objects that it defined stay"})
	}
	names, err := f.list()
	ready := err == nil
	if err != nil {
		stays(f.path, SourceUnreadable, err)
		for _, w := range f.files {
			w.seen = now // a file that was missing before counts as missing when the folder is back
		}
	} else {
		names = slices.AppendSeq(names, maps.Keys(f.files))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if err := f.look(name, now, renamed[name]); err != nil {
				stays(name, ManifestInvalid, err)
			} else if w := f.files[name]; w != nil && w.info == nil {
				ready = false
			}
		}
	}
	if f.changed {
		f.changed = false
		f.merge()
	}
	faults = append(faults, f.clashes...)
	for _, w := range f.files {
		faults = append(faults, w.faults...)
	}
	slices.SortFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Message, b.Message))
	})
	before := sets.New(*f.faults.Swap(&faults)...)
	for _, fault := range faults {
		if !before.Has(fault) {
			f.report(track.Notice{Warning: true, Reason: fault.Reason, Object: fault.File, Message: fault.Error()})
		}
	}
	if ready && !f.synced {
		f.synced = true
		f.tracker.Synced()
	}
}

// look reads a file if its content is new and it has not changed for long enough.
func (f *FileSource) look(name string, now time.Time, renamed bool) error {
	w := f.files[name]
	if w == nil {
		w = &file{seen: now}
		f.files[name] = w
	}
	info, err := stat(name)
	if err != nil {
		return err
	}
	if !same(info, w.next) {
		w.next, w.seen = info, now
	}
	old := now.Sub(w.seen) >= f.every || !f.synced && info != nil && now.Sub(info.ModTime()) >= f.every
	switch {
	case info == nil && (old || w.info == nil):
		delete(f.files, name)
		f.changed = true
	case info != nil && !same(info, w.info) && (old || renamed && info.Size() > 0):
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if after, _ := stat(name); same(info, after) { // otherwise the file changed meanwhile, and the next poll reads it
			f.accept(name, info, data)
		}
	}
	return nil
}

// stat returns the state of a regular file, or nil if there is no file. A dangling symlink is an error.
func stat(name string) (os.FileInfo, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(name); err != nil {
			return nil, nil
		}
	case err != nil:
	case !info.Mode().IsRegular(): // a pipe or a device could block the source
		err = errors.New("not a regular file")
	case info.Size() > maxFile:
		err = fmt.Errorf("larger than %d MiB", maxFile>>20)
	}
	return info, err
}

// same reports whether a and b describe the same file with the same content.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// accept replaces the content of a file. If the new content has a fault, objects that are missing from it stay, because
// the fault may hide them.
func (f *FileSource) accept(name string, info os.FileInfo, data []byte) {
	m, before := parse(name, data), f.files[name].objects
	for _, o := range before {
		if len(m.faults) > 0 && m.seen[o.id] == 0 {
			o.kept = true
			m.objects = append(m.objects, o)
		}
	}
	f.files[name] = &file{info: info, next: info, objects: m.objects, faults: m.faults}
	f.changed = true
	if len(m.ignored) > 0 {
		f.report(track.Notice{Reason: ManifestNote, Object: name, Message: fmt.Sprintf("%s: %s ignored; only Service, EndpointSlice and Node are read", name, strings.Join(sets.List(m.ignored), ", "))})
	}
}

// merge updates the tracker to the objects in the files. If two files define an object, merge uses the definition in
// the first file by name, and the other definition stays in memory.
func (f *FileSource) merge() {
	wanted := make(map[id]*object)
	f.clashes = nil
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		w := f.files[name]
		for i := range w.objects {
			o := &w.objects[i]
			first := wanted[o.id]
			if first == nil {
				wanted[o.id] = o
				continue
			}
			f.clashes = append(f.clashes, Fault{name, o.line, DefinedTwice, fmt.Sprintf("%s is also defined by %s, which is used", o.id, first.file)})
			if o.value == nil && !o.kept {
				w.info, w.seen = nil, time.Time{} // read the file again at the next poll, because this value was passed to the tracker and freed
			}
		}
	}
	for _, kind := range []string{"Node", "EndpointSlice", "Service"} { // pass a Service after its endpoints
		for id, o := range wanted {
			if id.kind == kind && o.value != nil {
				f.sinks[kind].set(o.value)
				o.value = nil
			}
		}
	}
	for id := range f.tracked {
		if wanted[id] == nil {
			f.sinks[id.kind].gone(id.namespace, id.name)
		}
	}
	f.tracked = wanted
}

// Faults returns the current faults of the files. It is safe for concurrent use.
func (f *FileSource) Faults() []Fault { return *f.faults.Load() }
