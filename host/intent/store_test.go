// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/swap"
)

// State files as hosts of before wrote them.
const (
	// d35d95b: which mode serves, and how far a change was.
	oldMode  = `{"serving":"iptables","asked":"userspace","file":"iptables"}`
	oldSwap1 = `{"stage":"proving","plan":{"from":"iptables","to":"userspace","why":"pointsman mode swap","drain":900000000000},"began":"2026-07-01T12:00:00.123456789Z"}` + "\n"
	oldSwap2 = `{"stage":"draining","plan":{"from":"userspace","to":"iptables","why":"pointsman mode swap","drain":900000000000,"toSlot":"b"},"began":"2026-07-01T12:00:00Z","undo":"the canary at 192.0.2.79:7079 (canary): i/o timeout","back":true}` + "\n"

	// 78fca56: as d35d95b, with what was left over, and with plans that know of more.
	newerMode = `{"serving":"ipvs","slot":"b","left":["iptables"]}`
	newerSwap = `{"stage":"staging","plan":{"from":"ipvs","to":"iptables","why":"the mode in the config file","drain":1000000000,"fromDown":true,"fromSlot":"b"},"began":"2026-07-01T12:00:00Z"}` + "\n"
)

func lay(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestOldFiles are taken over as hosts of before wrote them, also in the middle of a change.
// Once that is written down, no file of before is there.
func TestOldFiles(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	const drain = 15 * time.Minute
	for name, c := range map[string]struct {
		files map[string]string
		want  Saved
		swap  swap.Machine
	}{
		"nothing": {},
		"d35d95b": {map[string]string{file: oldMode}, Saved{Serving: "iptables", Asked: "userspace", File: "iptables"}, swap.Machine{}},
		"d35d95b, in the middle of a change": {map[string]string{file: oldMode, oldFile: oldSwap1}, Saved{Serving: "iptables", Asked: "userspace", File: "iptables"},
			swap.Machine{Stage: swap.Proving, Plan: swap.Plan{From: "iptables", To: "userspace", Why: "pointsman mode swap", Drain: drain}, Began: at.Add(123456789)}},
		"d35d95b, in the middle of an undo": {map[string]string{oldFile: oldSwap2}, Saved{},
			swap.Machine{Stage: swap.Draining, Plan: swap.Plan{From: "userspace", To: "iptables", Why: "pointsman mode swap", Drain: drain, ToSlot: "b"}, Began: at, Undo: "the canary at 192.0.2.79:7079 (canary): i/o timeout", Back: true}},
		"78fca56": {map[string]string{file: newerMode}, Saved{Serving: "ipvs", Slot: "b", Left: []string{"iptables"}}, swap.Machine{}},
		"78fca56, in the middle of a change": {map[string]string{file: newerMode, oldFile: newerSwap}, Saved{Serving: "ipvs", Slot: "b"},
			swap.Machine{Stage: swap.Staging, Plan: swap.Plan{From: "ipvs", To: "iptables", Why: "the mode in the config file", Drain: time.Second, FromDown: true, FromSlot: "b"}, Began: at}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := lay(t, c.files)
			check := func(when string) *Store {
				s, errs := Open(dir, "iptables")
				got := s.Intent()
				under := got.UnderWay()
				got.Swap = nil
				if len(errs) > 0 || string(got.text()) != string(c.want.text()) || under != c.swap {
					t.Errorf("%s: read as %+v and %+v, %v", when, got.Saved, under, errs)
				}
				return s
			}
			s := check("at first")
			if err := s.Repair(); err != nil {
				t.Fatal(err)
			}
			check("once it is one file")
			if _, err := os.Stat(filepath.Join(dir, oldFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is still there: %v", oldFile, err)
			}
		})
	}
}

// The files as d35d95b reads them.
type (
	modeOfBefore struct{ Serving, Slot, Asked, File string }
	swapOfBefore struct {
		Stage string
		Plan  struct{ From, To, FromSlot, ToSlot string }
		Undo  string
		Back  bool
	}
)

// TestOlderHost that comes after this one finds what serves, and what is left; and where this
// one ended by itself, how far the change was.
func TestOlderHost(t *testing.T) {
	dir := t.TempDir()
	s, _ := Open(dir, "iptables")
	plan := toUserspace
	plan.ToSlot = "b"
	m := swap.Machine{Stage: swap.Draining, Plan: plan, Began: began}
	if err := errors.Join(s.Change(func(i Intent) Intent { return i.Record(m) }), s.Leave()); err != nil {
		t.Fatal(err)
	}
	var mode modeOfBefore
	var under swapOfBefore
	if err := errors.Join(readJSON(filepath.Join(dir, file), &mode), readJSON(filepath.Join(dir, oldFile), &under)); err != nil {
		t.Fatal(err)
	}
	if mode.Serving != "userspace" || mode.Slot != "b" || under.Stage != "draining" || under.Plan.From != "iptables" || under.Plan.To != "userspace" {
		t.Errorf("it finds %+v and %+v", mode, under)
	}
	if next, errs := Open(dir, "iptables"); len(errs) > 0 || next.Intent().UnderWay() != m {
		t.Errorf("and a host like this one %+v, %v", next.Intent().Saved, errs)
	}
	idle, _ := Open(t.TempDir(), "iptables")
	if err := idle.Leave(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(idle.dir); len(left) > 0 {
		t.Errorf("without a change it finds %v", left)
	}
}

// TestChange writes what the next host must know, and nothing else.
func TestChange(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state") // which is made
	s, _ := Open(dir, "iptables")
	if err := s.Repair(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with nothing to say it wrote: %v", err)
	}
	path := filepath.Join(dir, file)
	if err := s.Change(func(i Intent) Intent { return i.Serves("iptables", "") }); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(path)
	if err := s.Change(func(i Intent) Intent { return i.Serves("iptables", "").FileSays("iptables") }); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("what is no news is written again: %v", err)
	}
	if err := errors.Join(os.Remove(path), s.Repair()); err != nil {
		t.Fatal(err)
	}
	var got Saved
	if err := readJSON(path, &got); err != nil || got.Serving != "iptables" {
		t.Errorf("what was lost is written again as %+v, %v", got, err)
	}
}

// TestBehind: what could not be written is written with the next change, although that is no
// news; until then each one says why it is not.
func TestBehind(t *testing.T) {
	dir := t.TempDir()
	s, _ := Open(dir, "iptables")
	path := filepath.Join(dir, file)
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil { // nothing can take its place
		t.Fatal(err)
	}
	serves := func(i Intent) Intent { return i.Serves("iptables", "") }
	for range 2 {
		if err := s.Change(serves); err == nil || !strings.Contains(err.Error(), "where the swap stands") {
			t.Errorf("with no room: %v", err)
		}
	}
	if err := errors.Join(os.RemoveAll(path), s.Change(serves)); err != nil {
		t.Fatal(err)
	}
	if next, errs := Open(dir, "iptables"); next.Intent().Serving != "iptables" || len(errs) > 0 {
		t.Errorf("written: %+v, %v", next.Intent().Saved, errs)
	}
}

// TestUnusable: whatever lies where the files are is told of by its path, and left out.
func TestUnusable(t *testing.T) {
	for text, names := range map[string]string{
		`{`:                        file + " " + oldFile,
		`{"serving":"../x"}`:       file,
		`{"slot":"/x"}`:            file,
		`{"left":["../x"]}`:        file,
		`{"swap":{"stage":"fly"}}`: file,
		`{"stage":"fly"}`:          oldFile,
	} {
		s, errs := Open(lay(t, map[string]string{file: text, oldFile: text}), "iptables")
		for _, name := range strings.Fields(names) {
			if err := errors.Join(errs...); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s is told of as %v, without %s", text, err, name)
			}
		}
		if got, _ := json.Marshal(s.Intent().Saved); len(errs) != len(strings.Fields(names)) || string(got) != `{"serving":""}` {
			t.Errorf("%s is read as %s, and told of as %v", text, got, errs)
		}
	}
}
