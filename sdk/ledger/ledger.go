// SPDX-License-Identifier: Apache-2.0

// Package ledger records what dataplanes change on a node, so that it can be restored, and
// which process may write.
//
// Some settings that a dataplane changes are shared: a kernel parameter had a value before,
// another dataplane may need it too, and an operator may change it later. The ledger is one
// file per network namespace, shared by all dataplanes in it. It contains the value from before
// the first dataplane, and the current holders:
//
//	Take(iptables, route_localnet, 1)   records 0, writes 1
//	Take(ipvs,     route_localnet, 1)   records a second holder
//	Release(iptables)                   ipvs still holds it: stays 1
//	Release(ipvs)                       the last holder: writes 0, if it is still 1
//
// TakeFloor is Take for a limit, which is raised and never lowered. A value that another
// program has changed since is not restored. The record is on disk before the value is written,
// so a crash between the two loses nothing.
//
// The package also has the writer's lock: one writer for each mode in a network namespace
// (contract line 8 in package sdk). It is a file lock, which the kernel releases when the last
// process with the open file has ended. A plugin passes the file to the tools that it runs,
// which keeps a successor out until the tools have ended, too.
//
// The files of a deleted network namespace stay until a reboot clears the directory. They are
// small, and since Linux 5.14 no other namespace gets the same name.
//
// Open, Held and Look only read: a verb such as check leaves no files behind. Start reading at
// Ledger.Take and Ledger.TryLock.
package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// A Ledger is the ledger of one network namespace. Processes share it through its file; within
// a process its methods are safe for concurrent use.
type Ledger struct {
	dir       string
	namespace string
}

// Open returns the ledger, in dir, of the calling thread's network namespace. It creates
// nothing. It returns an error if dir does not exist and could not be created.
func Open(dir string) (*Ledger, error) {
	namespace, err := namespace()
	if err != nil {
		return nil, fmt.Errorf("open ledger: identify the network namespace: %w", err)
	}
	if err := mayMake(dir); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &Ledger{dir: dir, namespace: namespace}, nil
}

// settings is the content of the file: each kernel parameter that has a holder, by path.
type settings map[string]*entry

type entry struct {
	Before  string            `json:"before"`  // value before the first holder
	Ours    string            `json:"ours"`    // value that a holder wrote last
	Holders map[string]string `json:"holders"` // value that each holder wants
	Floor   bool              `json:"floor,omitempty"`
}

// Take sets the kernel parameter at path (such as /proc/sys/net/ipv4/conf/all/route_localnet)
// to value for holder, and records its previous value. Taking a parameter again is harmless. A
// parameter that already has the value is recorded but not written.
func (l *Ledger) Take(holder, path, value string) error {
	return l.take(holder, path, value, false)
}

// TakeFloor is Take for a limit, such as nf_conntrack_max: it raises the parameter to least,
// and leaves a higher value, but registers holder in either case. While anybody holds the
// limit, Release by another holder does not change it. A value that another program has set
// since then replaces the recorded previous value.
func (l *Ledger) TakeFloor(holder, path string, least uint64) error {
	return l.take(holder, path, strconv.FormatUint(least, 10), true)
}

func (l *Ledger) take(holder, path, value string, floor bool) error {
	return l.edit(func(p settings) error {
		current, err := readParameter(path)
		if err != nil {
			return fmt.Errorf("take %s: %w", path, err)
		}
		e := p[path]
		if e == nil {
			e = &entry{Before: current, Ours: current, Holders: make(map[string]string)}
			p[path] = e
		}
		e.Floor = floor
		if floor && current != e.Ours {
			e.Before, e.Ours = current, current
		}
		was := entry{Ours: e.Ours, Holders: maps.Clone(e.Holders)}
		e.Holders[holder] = value
		if floor && atLeast(current, value) {
			return nil
		}
		e.Ours = value
		if current == value {
			return nil
		}
		if err := l.write(p); err != nil {
			return err
		}
		if err := writeParameter(path, value); err != nil {
			e.Ours, e.Holders = was.Ours, was.Holders // nothing was taken
			if len(e.Holders) == 0 {
				delete(p, path)
			}
			return err
		}
		return nil
	})
}

// Release releases everything that holder holds, except the paths in but. A parameter without
// other holders gets its previous value back, unless another program has changed it since;
// Release returns the names of those restored. A parameter that another dataplane still holds
// gets the value that that dataplane wants.
func (l *Ledger) Release(holder string, but ...string) ([]string, error) {
	var given []string
	err := l.edit(func(p settings) error {
		var errs []error
		for _, path := range slices.Sorted(maps.Keys(p)) {
			if slices.Contains(but, path) {
				continue
			}
			back, err := p[path].release(holder, path)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if back {
				given = append(given, fmt.Sprintf("%s back to %s", path, p[path].Before))
			}
			if len(p[path].Holders) == 0 {
				delete(p, path)
			}
		}
		return errors.Join(errs...)
	})
	return given, err
}

// Held returns what holder holds, in the form that Release uses. It only reads.
func (l *Ledger) Held(holder string) ([]string, error) {
	p, err := l.read()
	if err != nil {
		return nil, err
	}
	var held []string
	for _, path := range slices.Sorted(maps.Keys(p)) {
		e := p[path]
		if _, ok := e.Holders[holder]; ok && len(e.Holders) == 1 && e.Ours != e.Before {
			held = append(held, fmt.Sprintf("%s back to %s", path, e.Before))
		}
	}
	return held, nil
}

// release removes holder from e, and reports whether the previous value was restored.
func (e *entry) release(holder, path string) (bool, error) {
	if _, ok := e.Holders[holder]; !ok {
		return false, nil
	}
	if e.Floor && len(e.Holders) > 1 {
		delete(e.Holders, holder)
		return false, nil
	}
	current, err := readParameter(path)
	if errors.Is(err, fs.ErrNotExist) {
		delete(e.Holders, holder) // its kernel module was unloaded, and the value with it
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("restore %s: %w", path, err)
	}
	next := e.Before
	for _, other := range slices.Sorted(maps.Keys(e.Holders)) {
		if other != holder {
			next = e.Holders[other]
		}
	}
	if current == e.Ours && current != next {
		if err := writeParameter(path, next); err != nil {
			return false, fmt.Errorf("restore %s: %w", path, err)
		}
	}
	delete(e.Holders, holder)
	back := len(e.Holders) == 0 && current == e.Ours && current != next
	if current == e.Ours {
		e.Ours = next
	}
	return back, nil
}

// edit reads the settings under their lock, calls change, and writes the result. It writes even
// after an error, so that the file shows how far change came. The lock is held only while a few
// files are written, by code that waits for nothing else.
func (l *Ledger) edit(change func(settings) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	lock, err := l.lockRecord(ctx, settingsLock)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	p, err := l.read()
	if err != nil {
		return err
	}
	err = change(p)
	return errors.Join(err, l.write(p))
}

func (l *Ledger) read() (settings, error) {
	p := make(settings)
	data, err := statefile.Read(l.file(".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("read ledger %s: %w; remove the file if the values in it no longer matter", l.file(".json"), err)
	}
	return p, nil
}

func (l *Ledger) write(p settings) error { return write(l.file(".json"), p, len(p) == 0) }

// write replaces a file with v as JSON, atomically and durably. It removes the file if v is
// empty.
func write(file string, v any, empty bool) error {
	if empty {
		return statefile.Remove(file)
	}
	data, err := json.MarshalIndent(v, "", "\t")
	if err == nil {
		err = statefile.Write(file, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	return nil
}

func (l *Ledger) file(suffix string) string { return filepath.Join(l.dir, l.namespace+suffix) }

// readParameter returns a parameter's value, with its fields separated by single spaces however the
// kernel prints them.
func readParameter(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return strings.Join(strings.Fields(string(data)), " "), nil
}

// atLeast reports whether the number value is at least least.
func atLeast(value, least string) bool {
	has, err := strconv.ParseUint(value, 10, 64)
	wants, wrong := strconv.ParseUint(least, 10, 64)
	return err == nil && wrong == nil && has >= wants
}

func writeParameter(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
