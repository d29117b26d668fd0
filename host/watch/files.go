// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/pointsman/pointsman/host/track"
)

const (
	// settle is how long a file that was renamed to its name must have been unchanged, and how long changes that the
	// kernel reports are collected.
	settle = 50 * time.Millisecond

	// stale is how long a file may change all the time, or a poll may take, until that is a fault.
	stale = 5 * time.Second

	maxFile   = 128 << 20 // bytes
	maxFaults = 100       // that are shown
)

// A FileSource keeps a tracker in line with a file or a folder of manifests.
//
// It polls each second. A change counts once two polls found the file the same, because its writer may be in the middle
// of it, and what is missing counts once two polls missed it. Changes that the kernel reports are looked at between the
// polls; a file that was renamed to its name then counts at once. What cannot be read, or has a fault, removes nothing.
type FileSource struct {
	path    string
	dir     string // of the files
	tracker *track.Tracker
	report  func(track.Notice)
	every   time.Duration // between two polls

	files   map[string]*file // by name
	tracked sets.Set[id]     // that the tracker has
	changed bool             // since the last merge
	synced  bool
	away    string  // why the folder cannot be read
	clashes []Fault // between files

	mu     sync.Mutex // guards the following fields
	faults []Fault    // after the last look
	ended  time.Time  // of the last look
	pods   [][]Pod    // by EndpointSlice
}

// A file is the state of one manifest file.
type file struct {
	info    os.FileInfo // of the content that counts; nil: none does
	objects []object
	faults  []Fault

	since   time.Time   // since when the file has differed from the content that counts; zero: it does not
	next    os.FileInfo // as last seen; nil: the file is missing
	seen    time.Time   // when next was first seen
	trouble string      // why the file cannot be read now
}

// Files returns the source that reads path: a file, or a folder, of which it reads the .yaml, .yml and .json files, but
// not those whose names begin with a dot. Nothing happens before Run.
func Files(path string, t *track.Tracker, report func(track.Notice)) *FileSource {
	return &FileSource{path: filepath.Clean(path), tracker: t, report: report, every: time.Second, files: make(map[string]*file), tracked: sets.New[id](), ended: time.Now()}
}

// Run follows the files until ctx ends. The tracker is synced once each file was read, or cannot be read.
func (f *FileSource) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewBufferedWatcher(1024)
	if err != nil { // the kernel limits them for each user
		watcher = &fsnotify.Watcher{}
	} else {
		defer watcher.Close()
	}
	poll := time.NewTimer(0)
	defer poll.Stop()
	var settled <-chan time.Time
	news := make(map[string]bool) // names, and whether each was renamed to its name and not written to since
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watcher.Errors: // such as lost events
		case e := <-watcher.Events:
			name := filepath.Clean(e.Name)
			news[name] = e.Has(fsnotify.Create) || news[name] && !e.Has(fsnotify.Write)
			if settled == nil {
				settled = time.After(settle)
			}
		case <-settled:
			for name, renamed := range news {
				if name == f.path && f.dir != name || filepath.Dir(name) == f.path && isManifest(name) {
					f.look(name, time.Now(), renamed)
				}
				if w := f.files[name]; w == nil || w.since.IsZero() || !renamed {
					delete(news, name)
				}
			}
			if settled = nil; len(news) > 0 { // too young
				settled = time.After(settle)
			}
			f.finish(time.Now())
		case <-poll.C:
			f.poll(time.Now())
			if err == nil {
				_ = watcher.Add(f.dir) // also if the path leads to another folder now; without it the polls are enough
			}
			f.finish(time.Now())
			poll.Reset(f.every)
		}
	}
}

func isManifest(name string) bool {
	return !strings.HasPrefix(filepath.Base(name), ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
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
		if isManifest(e.Name()) {
			names = append(names, filepath.Join(f.path, e.Name()))
		}
	}
	return names, err
}

// poll looks at all files.
func (f *FileSource) poll(now time.Time) {
	names, err := f.list()
	if err != nil {
		f.away = fmt.Sprintf("%v; the objects that it defined stay", err)
		for _, w := range f.files {
			w.seen = now // a file that was missing before counts as missing when the folder is back
		}
		return
	}
	f.away = ""
	names = slices.AppendSeq(names, maps.Keys(f.files))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		f.look(name, now, false)
	}
}

// look reads a file if it has changed and its content counts: the file stood still from one poll to the next, or was
// renamed to its name, or, when the source starts, is old.
func (f *FileSource) look(name string, now time.Time, renamed bool) {
	w := f.files[name]
	if w == nil {
		w = &file{}
		f.files[name] = w
	}
	info, err := stat(name)
	if err != nil {
		w.since, w.trouble = time.Time{}, fmt.Sprintf("%v; the objects that it defined stay", err)
		return
	}
	if same(info, w.info) && info != nil {
		w.since, w.trouble = time.Time{}, ""
		return
	}
	if w.since.IsZero() {
		w.since, w.next, w.seen = now, info, now
	} else if !same(info, w.next) {
		w.next, w.seen = info, now
	}
	stood := now.Sub(w.seen) >= f.every
	switch {
	case info == nil && (stood || w.info == nil):
		delete(f.files, name)
		f.changed = true
	case info == nil:
	case stood, renamed && info.Size() > 0 && now.Sub(info.ModTime()) >= settle, !f.synced && now.Sub(info.ModTime()) >= f.every:
		data, err := os.ReadFile(name)
		if err != nil {
			w.trouble = fmt.Sprintf("%v; the objects that it defined stay", err)
		} else if after, _ := stat(name); same(info, after) { // else the next poll sees more
			f.accept(name, info, data)
		}
	case now.Sub(w.since) >= stale:
		w.trouble = "it changes all the time; the objects that it defined stay; try: write another file and rename it"
	}
}

// stat returns the state of a file that can be read, nil: there is none. A link to nothing is an error.
func stat(name string) (os.FileInfo, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(name); err != nil {
			return nil, nil
		}
	case err != nil:
	case !info.Mode().IsRegular(): // a pipe or a device could block the source
		err = errors.New("it is no regular file")
	case info.Size() > maxFile:
		err = fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	return info, err
}

// same reports whether a and b are of the same content.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// accept makes data the content that counts. If it has a fault, the objects that it lacks stay: they may be what the
// fault hides.
func (f *FileSource) accept(name string, info os.FileInfo, data []byte) {
	m, before := parse(name, data), f.files[name].objects
	for _, o := range before {
		if len(m.faults) > 0 && m.seen[o.id] == 0 {
			o.kept = true
			m.objects = append(m.objects, o)
		}
	}
	f.files[name] = &file{info: info, objects: m.objects, faults: m.faults}
	f.changed = true
	if len(m.ignored) > 0 {
		f.report(track.Notice{Reason: ManifestNote, Object: name, Message: fmt.Sprintf("%s: %s ignored; only Service, EndpointSlice and Node are read", name, strings.Join(sets.List(m.ignored), ", "))})
	}
}

// merge passes the differences between what the tracker has and what the files define to the tracker. Of two files that
// define an object the first by name is used; the object of the other one stays in memory.
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
			f.clashes = append(f.clashes, Fault{name, o.line, DefinedTwice, fmt.Sprintf("%s is defined by %s, too, and that one is used", o.id, first.file)})
			if o.value == nil && !o.kept {
				w.info, w.next, w.seen, w.since = nil, w.info, time.Time{}, time.Now() // have the file read again
			}
		}
	}
	var pods [][]Pod
	for id, o := range wanted {
		if o.pods != nil {
			pods = append(pods, o.pods)
		}
		if o.service.name != "" && wanted[o.service] == nil {
			f.clashes = append(f.clashes, Fault{o.file, o.line, ManifestInvalid, fmt.Sprintf("%s: label %s: no file defines %s", id, discoveryv1.LabelServiceName, o.service)})
		}
	}
	for _, kind := range []string{"Node", "EndpointSlice", "Service"} { // so that no Service is without its endpoints in between
		for id, o := range wanted {
			if id.kind == kind && o.value != nil {
				o.set(f.tracker)
				f.tracked.Insert(id)
			}
		}
	}
	for id := range f.tracked {
		if wanted[id] == nil {
			id.remove(f.tracker)
			f.tracked.Delete(id)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods = pods
}

// finish passes what was found to the tracker, and reports the faults that are new.
func (f *FileSource) finish(now time.Time) {
	if f.changed {
		f.changed = false
		f.merge()
	}
	ready := f.away == ""
	faults := slices.Clone(f.clashes)
	if f.away != "" {
		faults = append(faults, Fault{f.path, 0, SourceUnreadable, f.away})
	}
	for name, w := range f.files {
		if ready = ready && (w.info != nil || w.trouble != ""); w.trouble != "" {
			faults = append(faults, Fault{name, 0, ManifestInvalid, w.trouble})
		}
		faults = append(faults, w.faults...)
	}
	slices.SortFunc(faults, Fault.compare)
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults], Fault{f.path, 0, ManifestInvalid, fmt.Sprintf("and %d more", more)})
	}
	f.mu.Lock()
	before := sets.New(f.faults...)
	f.faults, f.ended = faults, now
	f.mu.Unlock()
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

// Faults returns what is wrong in the files now. It is safe for concurrent use.
func (f *FileSource) Faults() (all []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if late := time.Since(f.ended); late > f.every+stale {
		all = append(all, Fault{File: f.path, Message: fmt.Sprintf("no look at the manifests has ended for %s; the objects that they defined stay", late.Round(time.Second))})
	}
	return append(all, f.faults...)
}

// Pods returns the pods of a namespace that the manifests name, one for each slice and endpoint. It is safe for
// concurrent use.
func (f *FileSource) Pods(_ context.Context, namespace string) (all []Pod, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.pods {
		if of[0].Namespace == namespace { // a slice and its pods have one
			all = append(all, of...)
		}
	}
	return all, nil
}
