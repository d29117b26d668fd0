// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pointsman/pointsman/host/track"
)

// A Kind is what kind of object a manifest holds.
type Kind string

// The kinds that are served.
const (
	Service       Kind = "Service"
	EndpointSlice Kind = "EndpointSlice"
	Node          Kind = "Node"
)

// An ID names one object.
type ID struct {
	Kind      Kind
	Namespace string // empty for a Node
	Name      string
}

func (id ID) String() string {
	if id.Namespace == "" {
		return string(id.Kind) + " " + id.Name
	}
	return string(id.Kind) + " " + id.Namespace + "/" + id.Name
}

// An Object is one object as a file defines it.
type Object struct {
	ID      ID
	Line    int
	Service string // of an EndpointSlice: the Service it says it belongs to

	file  string
	value runtime.Object // nil once passed on, to free the memory
	sum   sum            // equal sums are equal objects
	pods  []Pod          // of an EndpointSlice: those it names
}

type sum [sha256.Size]byte

// Tell passes o to t.
func (o Object) Tell(t *track.Tracker) {
	switch v := o.value.(type) {
	case *corev1.Service:
		t.SetService(v)
	case *discoveryv1.EndpointSlice:
		t.SetSlice(v)
	case *corev1.Node:
		t.SetNode(v)
	}
}

// forget removes the object named id from t.
func (id ID) forget(t *track.Tracker) {
	switch id.Kind {
	case Service:
		t.DeleteService(id.Namespace, id.Name)
	case EndpointSlice:
		t.DeleteSlice(id.Namespace, id.Name)
	case Node:
		t.DeleteNode(id.Name)
	}
}

// order returns the order in which kinds are passed on: the one in which the least is decided twice.
func (k Kind) order() int { return slices.Index([]Kind{Node, EndpointSlice, Service}, k) }

// nextMissed returns when the first of what is missed is removed; zero: nothing is missed.
func (f *FileSource) nextMissed() (first time.Time) {
	for _, since := range f.missed {
		if at := since.Add(f.settings.Interval); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// merge passes to the tracker the difference between what it has and what the
// files say. Of two files that define an object the first by name wins.
func (f *FileSource) merge(now time.Time) {
	wanted := make(map[ID]*Object)
	clashes := make(map[ID]Fault)
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		objects := f.files[name].objects
		for i := range objects {
			o := &objects[i]
			if wanted[o.ID] != nil {
				clashes[o.ID] = Fault{File: name, Line: o.Line, Message: fmt.Sprintf("%s: %s defines it too, and that one is used", o.ID, wanted[o.ID].file)}
				continue
			}
			wanted[o.ID] = o
		}
	}
	f.clashes = f.sayNew(DefinedTwice, f.clashes, clashes)
	f.orphans = f.sayNew(ManifestInvalid, f.orphans, findOrphans(wanted))
	f.tell(wanted)
	f.removeMissed(wanted, now)
	for _, file := range f.files {
		for i := range file.objects {
			file.objects[i].value = nil
		}
	}
	var pods [][]Pod
	for _, o := range wanted {
		if o.pods != nil {
			pods = append(pods, o.pods)
		}
	}
	f.mu.Lock()
	f.pods = pods
	f.mu.Unlock()
}

// tell passes on what is new or differs.
func (f *FileSource) tell(wanted map[ID]*Object) {
	var news []*Object
	for id, o := range wanted {
		switch {
		case f.tracked[id] == o.sum:
		case o.value == nil: // it was another file's to say until now
			f.reread(o.file)
		default:
			news = append(news, o)
			f.tracked[id] = o.sum
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
	file.known, file.state, file.parts = false, fileState{}, nil
	file.due = f.now()
	file.draft = draft{hash: file.hash, since: file.due.Add(-f.settings.Interval), began: file.due}
	f.pending[name] = true
}

// removeMissed removes what has been missing for an interval: its file may be in the
// middle of being replaced, or written by several commands.
func (f *FileSource) removeMissed(wanted map[ID]*Object, now time.Time) {
	for id := range f.tracked {
		since, missed := f.missed[id]
		switch {
		case wanted[id] != nil:
			delete(f.missed, id)
		case !missed:
			f.missed[id] = now
		case now.Sub(since) >= f.settings.Interval:
			delete(f.missed, id)
			delete(f.tracked, id)
			id.forget(f.tracker)
		}
	}
}

// sayNew reports the faults of now that were not there before.
func (f *FileSource) sayNew(reason string, before, now map[ID]Fault) map[ID]Fault {
	for id, fault := range now {
		if before[id] != fault {
			f.warn(reason, id.String(), fault.Error())
		}
	}
	return now
}

// findOrphans finds the slices that name a Service which no file defines: here
// nothing else will define it, so the label is wrong.
func findOrphans(wanted map[ID]*Object) map[ID]Fault {
	orphans := make(map[ID]Fault)
	for id, o := range wanted {
		if id.Kind != EndpointSlice || o.Service == "" || wanted[ID{Service, id.Namespace, o.Service}] != nil {
			continue
		}
		orphans[id] = Fault{
			File: o.file, Line: o.Line,
			Message: fmt.Sprintf("%s: label kubernetes.io/service-name says %s/%s, and no file defines that Service", id, id.Namespace, o.Service),
		}
	}
	return orphans
}
