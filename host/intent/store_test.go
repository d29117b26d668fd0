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

	"github.com/pointsman/pointsman/host/swap"
)

// TestReopened has a host find what the one before wrote in the middle of a change.
func TestReopened(t *testing.T) {
	dir := t.TempDir()
	s, _ := Open(dir, "iptables")
	m := swap.Machine{Stage: swap.Staging, Plan: toUserspace, Began: began}
	err := s.Change(func(i Intent) Intent {
		i = i.Serves("iptables", "b").Ask("userspace").Record(m)
		i.Left = []string{"ipvs"}
		return i
	})
	if err != nil {
		t.Fatal(err)
	}
	next, errs := Open(dir, "iptables")
	got := next.Intent()
	under := got.UnderWay()
	got.Swap = nil
	want := Saved{Serving: "iptables", Slot: "b", Asked: "userspace", File: "iptables", Left: []string{"ipvs"}}
	if len(errs) > 0 || string(got.text()) != string(want.text()) || under != m {
		t.Errorf("it finds %+v and %+v, %v", got.Saved, under, errs)
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

// TestUnusable: whatever lies where the file is is told of by its path, and left out.
func TestUnusable(t *testing.T) {
	for _, text := range []string{`{`, `{"serving":"../x"}`, `{"slot":"/x"}`, `{"left":["../x"]}`, `{"swap":{"stage":"fly"}}`} {
		dir := t.TempDir()
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, errs := Open(dir, "iptables")
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), path) {
			t.Errorf("%s is told of as %v", text, errs)
		}
		if got, _ := json.Marshal(s.Intent().Saved); string(got) != `{"serving":""}` {
			t.Errorf("%s is read as %s", text, got)
		}
	}
}
