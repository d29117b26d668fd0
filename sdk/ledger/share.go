// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// A Share is what the ledger has of something that several dataplanes hold together, such as
// chains that other software on the node relies on. It can be looked at and changed, and so
// can the thing itself, until it is closed: that is the thing's lock, which is none of those
// for modes.
type Share struct {
	Holders []string          // the dataplanes that need it, in order
	Facts   map[string]string // what they must know of it, whatever that is

	file  string
	saved []byte // what the file has
	lock  *Lock
}

// Share waits, until ctx ends, for the lock of what is called name, and reads what the ledger
// has of it: nothing, if no dataplane ever held it, or the ledger was lost. No mode is called
// so: name has an upper-case letter.
func (l *Ledger) Share(ctx context.Context, name string) (*Share, error) {
	lock, err := l.Lock(ctx, name)
	if errors.As(err, new(*sdk.Busy)) { // the host would take that for the mode's lock
		err = fmt.Errorf("wait for the lock of %s: %v: %w", name, err, ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	s := l.Look(name)
	s.lock = lock
	return s, nil
}

// Look returns what is known of a name, without its lock: it is neither saved nor closed.
func (l *Ledger) Look(name string) *Share {
	s := &Share{file: l.file("-" + name + ".json")}
	data, err := statefile.Read(s.file)
	if err == nil {
		s.saved = data
		err = json.Unmarshal(data, s)
	}
	if err != nil { // there is none, or what is there is as good as lost
		s.Holders, s.Facts = nil, nil
	}
	if s.Facts == nil {
		s.Facts = make(map[string]string)
	}
	return s
}

// Add notes that holder needs it; it reports whether that is new.
func (s *Share) Add(holder string) bool {
	at, there := slices.BinarySearch(s.Holders, holder)
	if !there {
		s.Holders = slices.Insert(s.Holders, at, holder)
	}
	return !there
}

// Remove notes that holder needs it no longer; it reports whether it did.
func (s *Share) Remove(holder string) bool {
	at, there := slices.BinarySearch(s.Holders, holder)
	if there {
		s.Holders = slices.Delete(s.Holders, at, at+1)
	}
	return there
}

// Save is done when what the ledger has of it is on disk. Without holders and facts there is
// no file.
func (s *Share) Save() error {
	if len(s.Holders)+len(s.Facts) == 0 {
		if err := os.Remove(s.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write ledger: %w", err)
		}
		return nil
	}
	data, err := json.MarshalIndent(s, "", "\t")
	if data = append(data, '\n'); err == nil && !bytes.Equal(data, s.saved) {
		err = statefile.Write(s.file, data)
	}
	if err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	return nil
}

// File returns what to hand to a tool that changes the thing, so that the lock lasts until the
// tool is done.
func (s *Share) File() *os.File { return s.lock.File() }

// Close releases the lock.
func (s *Share) Close() error { return s.lock.Unlock() }
