// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestBrokenFormerModeIsLeft: a host begins with the mode that served before, and swaps to the
// file's mode if the binary of the former is broken.
func TestBrokenFormerModeIsLeft(t *testing.T) {
	s := newFormerHost(t)
	s.write(modeFile(s.host), `{"serving":"userspace"}`)
	set := s.next()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		if err := set.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	defer func() { cancel(); <-ended }()
	eventually.Succeeds(t, "the host swaps to iptables, the mode of the file", func() error {
		if m := set.Show(); (m.Swap == nil || m.Swap.To != "iptables") && (m.Last == nil || m.Last.To != "iptables") {
			return fmt.Errorf("the host keeps %s, which is %s", set.Mode(), set.Serving().State)
		}
		return nil
	})
}

// TestLastRequestWins changes the desired mode before the first dataplane is up.
func TestLastRequestWins(t *testing.T) {
	for name, change := range map[string]func(*Set) error{
		"nothing": func(*Set) error { return nil },
		"the file": func(set *Set) error {
			set.Reload(config.State{Host: &config.Host{Mode: "userspace"}, Applied: []string{"mode"}})
			return nil
		},
		"mode swap": func(set *Set) error { _, err := set.SwapTo(admin.SwapAsk{To: "userspace"}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFormerHost(t)
			s.write(modeFile(s.host), `{"serving":"userspace"}`)
			set := s.next()
			if err := change(set); err != nil {
				t.Fatal(err)
			}
			if iptables := wanted(set) == "iptables"; iptables != (name == "nothing") {
				t.Errorf("the host wants %s", wanted(set))
			}
		})
	}
}

// eventsOf returns the messages of a host's events with a reason.
func eventsOf(set *Set, reason string) (messages []string) {
	for _, e := range set.Reports.Recent() {
		if e.Reason == reason {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

// TestUnusableState: if the state file cannot be used, the host begins with the file's mode, and
// reports it.
func TestUnusableState(t *testing.T) {
	s := newFormerHost(t)
	s.write(modeFile(s.host), `{"serving":"../../userspace"}`)
	set := s.next()
	if said := eventsOf(set, report.StateNotUsed); set.Mode() != "iptables" || len(said) != 1 || !strings.Contains(said[0], "mode.json") {
		t.Errorf("begins with %s, and reports %q", set.Mode(), said)
	}
}

// TestModeNameIsNoPath: a mode whose name is a path is refused everywhere.
func TestModeNameIsNoPath(t *testing.T) {
	s := newFormerHost(t)
	set := s.next()
	for _, name := range []string{"../iptables", "", "a/b", "iptables\n", ".."} {
		if _, err := set.SwapTo(admin.SwapAsk{To: name, Force: true}); err == nil {
			t.Errorf("a swap to %q begins", name)
		}
		if p := set.plugin(name); strings.Contains(p.Path, "..") || strings.Contains(p.StateDir, "..") {
			t.Errorf("%q would execute %s in %s", name, p.Path, p.StateDir)
		}
	}
}

// TestFailedWriteIsReported: a failed write of the state file is reported once, and shown until a write
// succeeds. A file that was lost is written again.
func TestFailedWriteIsReported(t *testing.T) {
	s := newFormerHost(t)
	set := s.next()
	set.state.Facts = plane.Facts{Served: "iptables"}
	if err := set.write(true); err != nil {
		t.Fatal(err)
	}
	file := modeFile(s.host)
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil { // like a full file system, this makes the write fail
		t.Fatal(err)
	}
	for range 2 {
		_ = set.write(true) // write reports the error
	}
	if left := set.Unwritten(); !strings.Contains(left, "mode.json") {
		t.Errorf("unwritten: %q", left)
	}
	if said := eventsOf(set, report.StateNotWritten); len(said) != 1 {
		t.Errorf("said: %q", said)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := set.write(true); err != nil {
		t.Error(err)
	}
	if left := set.Unwritten(); left != "" || len(eventsOf(set, report.StateWritten)) != 1 {
		t.Errorf("unwritten: %q; reported: %q", left, eventsOf(set, report.StateWritten))
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != `{"serving":"iptables"}` {
		t.Errorf("written: %s, %v", text, err)
	}
}
