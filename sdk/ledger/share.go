// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"os"
	"slices"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// A Share is the record of an object that several dataplanes hold together, such as chains that
// other software on the node uses. It has a lock of its own, distinct from the writer's locks
// of modes: from Share until Close, the caller may read and change both the record and the
// object.
type Share struct {
	Holders []string          // dataplanes that need the object, sorted
	Facts   map[string]string // arbitrary facts about the object

	file string
	lock *Lock
}

// Share waits, until ctx ends, for the lock of the object called name, and reads its record.
// The record is empty if no dataplane has ever held the object, or if the ledger was lost. name
// must contain an upper-case letter, so that it cannot be the name of a mode.
func (l *Ledger) Share(ctx context.Context, name string) (*Share, error) {
	lock, err := l.lockRecord(ctx, name)
	if err != nil {
		return nil, err
	}
	s := l.Look(name)
	s.lock = lock
	return s, nil
}

// Look returns the record without its lock. It must not be saved or closed.
func (l *Ledger) Look(name string) *Share {
	s := &Share{file: l.file("-" + name + ".json")}
	data, err := statefile.Read(s.file)
	if err == nil {
		err = json.Unmarshal(data, s)
	}
	if err != nil { // there is no file, or it is not readable
		s.Holders, s.Facts = nil, nil
	}
	if s.Facts == nil {
		s.Facts = make(map[string]string)
	}
	return s
}

// Add adds holder, and reports whether it is new.
func (s *Share) Add(holder string) bool {
	at, there := slices.BinarySearch(s.Holders, holder)
	if !there {
		s.Holders = slices.Insert(s.Holders, at, holder)
	}
	return !there
}

// Remove removes holder, and reports whether it was there.
func (s *Share) Remove(holder string) bool {
	at, there := slices.BinarySearch(s.Holders, holder)
	if there {
		s.Holders = slices.Delete(s.Holders, at, at+1)
	}
	return there
}

// Save writes the record durably. If it has neither holders nor facts, Save removes the file.
func (s *Share) Save() error { return write(s.file, s, len(s.Holders)+len(s.Facts) == 0) }

// File returns the file to pass to a tool that changes the object, so that the lock lasts until
// the tool has ended.
func (s *Share) File() *os.File { return s.lock.File() }

// Close releases the lock.
func (s *Share) Close() error { return s.lock.Unlock() }
