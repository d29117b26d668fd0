// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"fmt"
	"slices"
)

// merged is what the tracker has been told, and what is in doubt.
type merged struct {
	told    map[ID]sum
	missed  map[ID]bool  // told, and not seen by the last look
	clashes map[ID]Fault // objects that two files define
	orphans map[ID]Fault // slices whose Service no file defines
}

func newMerged() merged { return merged{told: make(map[ID]sum), missed: make(map[ID]bool)} }

// doubtful reports whether another look may have to take something away, though
// no file changed.
func (m *merged) doubtful() bool { return len(m.missed) > 0 }

// merge tells the tracker the difference between what it was told and what the
// files say. Of two files that define an object the first by name wins.
func (f *FileSource) merge(names []string) {
	wanted := make(map[ID]*Object)
	owner := make(map[ID]string)
	clashes := make(map[ID]Fault)
	for _, name := range names {
		objects := f.files[name].objects
		for i := range objects {
			o := &objects[i]
			if wanted[o.ID] != nil {
				clashes[o.ID] = Fault{File: name, Line: o.Line, Message: fmt.Sprintf("%s: %s defines it too, and that one is used", o.ID, owner[o.ID])}
				continue
			}
			wanted[o.ID], owner[o.ID] = o, name
		}
	}
	f.sayNew(DefinedTwice, f.clashes, clashes)
	f.clashes = clashes
	orphans := findOrphans(wanted, owner)
	f.sayNew(ManifestInvalid, f.orphans, orphans)
	f.orphans = orphans
	f.tell(wanted, owner)
	f.takeAway(wanted)
	for _, file := range f.files {
		for i := range file.objects {
			file.objects[i].value = nil
		}
	}
}

// tell tells what is new or another.
func (f *FileSource) tell(wanted map[ID]*Object, owner map[ID]string) {
	var news []*Object
	for id, o := range wanted {
		switch {
		case f.told[id] == o.sum:
		case o.value == nil: // it was another file's to say until now
			f.reread(owner[id])
		default:
			news = append(news, o)
			f.told[id] = o.sum
		}
	}
	slices.SortFunc(news, func(a, b *Object) int { return cmp.Compare(a.ID.Kind.order(), b.ID.Kind.order()) })
	for _, o := range news {
		o.Tell(f.tracker)
	}
}

// reread makes the next look read a file from its beginning.
func (f *FileSource) reread(name string) {
	file := f.files[name]
	file.info, file.hash, file.parts = nil, sum{}, nil
	f.files[name] = file
}

// takeAway takes back what two looks in a row have missed.
func (f *FileSource) takeAway(wanted map[ID]*Object) {
	for id := range f.told {
		switch {
		case wanted[id] != nil:
			delete(f.missed, id)
		case f.missed[id]:
			delete(f.missed, id)
			delete(f.told, id)
			id.forget(f.tracker)
		default:
			f.missed[id] = true
		}
	}
}

// sayNew says the faults that were not there before.
func (f *FileSource) sayNew(reason string, before, now map[ID]Fault) {
	for id, fault := range now {
		if before[id] != fault {
			f.warn(reason, id.String(), fault.Error())
		}
	}
}

// findOrphans finds the slices that name a Service which no file defines: here
// nobody else will, so the label is wrong.
func findOrphans(wanted map[ID]*Object, owner map[ID]string) map[ID]Fault {
	orphans := make(map[ID]Fault)
	for id, o := range wanted {
		if id.Kind != EndpointSlice || o.Service == "" || wanted[ID{Service, id.Namespace, o.Service}] != nil {
			continue
		}
		orphans[id] = Fault{
			File: owner[id], Line: o.Line,
			Message: fmt.Sprintf("%s: label kubernetes.io/service-name says %s/%s, and no file defines that Service", id, id.Namespace, o.Service),
		}
	}
	return orphans
}
