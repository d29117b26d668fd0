// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// notes are a folder with a file for each address that is noted, and one for each holder that
// lives, which it has locked. A process that changes them has the folder's lock.
type notes struct {
	dir  string
	edge func() // called before each change; a test's to crash in
}

const (
	suffix      = ".json"
	unfinished  = ".new"
	holderStem  = "holder-"
	lockSuffix  = ".lock"
	lockTimeout = 5 * time.Second
	lockPoll    = 5 * time.Millisecond
	renames     = 20 // with lockPoll between them
)

// file is that of addr; a colon is not allowed in a name on Windows.
func (n *notes) file(addr netip.Addr) string {
	return filepath.Join(n.dir, strings.ReplaceAll(addr.String(), ":", "-")+suffix)
}

// addrOf is the address that a file of that name is about.
func addrOf(name string) (netip.Addr, bool) {
	stem, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(strings.ReplaceAll(stem, "-", ":"))
	return addr, err == nil
}

// read returns the note about addr; nil: there is none, or it cannot be read, and then nothing
// is known to be ours.
func (n *notes) read(addr netip.Addr) *note {
	data, err := statefile.Read(n.file(addr))
	if err != nil {
		return nil
	}
	var found note
	if json.Unmarshal(data, &found) != nil {
		return nil
	}
	return &found
}

// has reports whether there is a note about addr.
func (n *notes) has(addr netip.Addr) bool {
	_, err := os.Lstat(n.file(addr))
	return err == nil
}

// write replaces the note about addr as a whole. A process that is killed leaves the old one or
// the new one.
func (n *notes) write(addr netip.Addr, now note) error {
	data, err := json.Marshal(now)
	if err != nil {
		return err
	}
	n.edge()
	next := n.file(addr) + unfinished
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return fmt.Errorf("note the address %s: %w", addr, err)
	}
	n.edge()
	for try := 0; ; try++ {
		err := os.Rename(next, n.file(addr))
		switch {
		case err == nil:
			return nil
		case try == renames || !errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("note the address %s: %w", addr, err)
		}
		time.Sleep(lockPoll) // Windows replaces no file that another program has open, as a scanner does for a moment
	}
}

// drop removes the note about addr.
func (n *notes) drop(addr netip.Addr) error {
	n.edge()
	if err := os.Remove(n.file(addr)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the note about the address %s: %w", addr, err)
	}
	return nil
}

// all are the addresses that are noted, in order. Without a folder there are none.
func (n *notes) all() ([]netip.Addr, error) {
	entries, err := os.ReadDir(n.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the addresses that are noted: %w", err)
	}
	var all []netip.Addr
	for _, e := range entries {
		if addr, ok := addrOf(e.Name()); ok {
			all = append(all, addr)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all, nil
}

// lock waits for the folder's lock, for as long as another process takes to change a few notes.
// The folder must be there.
func (n *notes) lock(ctx context.Context) (unlock func(), err error) {
	name := filepath.Join(n.dir, "notes"+lockSuffix)
	for deadline := time.Now().Add(lockTimeout); ; {
		f, err := tryLock(name)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, errLocked) || time.Now().After(deadline) {
			return nil, fmt.Errorf("lock the notes about addresses, %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// holderFile is what the holder of that name has locked while it lives.
func (n *notes) holderFile(id string) string {
	return filepath.Join(n.dir, holderStem+id+lockSuffix)
}

// lives reports whether the process that is called id among holders does. What one that has
// ended left of itself is removed.
func (n *notes) lives(id string) bool {
	name := n.holderFile(id)
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	f, err := tryLock(name)
	if err != nil {
		return true // it lives, or that cannot be told
	}
	_ = f.Close()
	_ = os.Remove(name)
	return false
}

// wanted are the holders of found that live, without the one called me.
func (n *notes) wanted(found *note, me string, lives func(string) bool) []string {
	if found == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(found.Holders), func(id string) bool { return id == me || !lives(id) })
}

// prune removes what holders that have ended left of themselves, and notes that were not written
// to their end, as far as that can be done. Nothing depends on it.
func (n *notes) prune() {
	entries, _ := os.ReadDir(n.dir) // without a folder there is nothing
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Name(), holderStem); ok {
			n.lives(strings.TrimSuffix(id, lockSuffix))
		}
		if strings.HasSuffix(e.Name(), unfinished) {
			_ = os.Remove(filepath.Join(n.dir, e.Name()))
		}
	}
}
