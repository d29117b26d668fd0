// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// TestFactsAreReadAgain: a host finds what the one before wrote.
func TestFactsAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := Open(dir)
	want := Facts{Served: "iptables", Left: []string{"ipvs"}}.Asks("userspace", "iptables", true).
		Refuses(Want{Mode: "userspace", Build: "2", Number: 1}, "", "no luck", time.Unix(1_700_000_000, 0).UTC(), time.Unix(1_800_000_000, 0).UTC())
	if err := s.Write(want); err != nil {
		t.Fatal(err)
	}
	if _, got, err := Open(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it finds %+v, %v", got, err)
	}
}

// TestWrite writes what the next host must know, and nothing else.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state") // which is made
	s, _, _ := Open(dir)
	if err := s.Write(Facts{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with nothing to say it wrote: %v", err)
	}
	serves := Facts{}.Serves("iptables")
	if err := s.Write(serves); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(s.path())
	if err := s.Write(serves); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(s.path()); err != nil || !os.SameFile(before, after) {
		t.Errorf("what is no news is written again: %v", err)
	}
	if err := errors.Join(os.Remove(s.path()), s.Write(serves)); err != nil {
		t.Fatal(err)
	}
	if _, got, err := Open(dir); err != nil || got.Served != "iptables" {
		t.Errorf("what was lost is written again as %+v, %v", got, err)
	}
}

// TestBehind: what could not be written says so each time, until it can be written.
func TestBehind(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := Open(dir)
	if err := os.MkdirAll(filepath.Join(s.path(), "full"), 0o700); err != nil { // nothing can take its place
		t.Fatal(err)
	}
	serves := Facts{}.Serves("iptables")
	for range 2 {
		if err := s.Write(serves); err == nil || !strings.Contains(err.Error(), "which mode serves") || !s.behind {
			t.Errorf("with no room: %v", err)
		}
	}
	if err := errors.Join(os.RemoveAll(s.path()), s.Write(serves)); err != nil || s.behind {
		t.Fatal(err)
	}
	if _, got, err := Open(dir); got.Served != "iptables" || err != nil {
		t.Errorf("written: %+v, %v", got, err)
	}
}

// TestUnusable: whatever lies where the file is is told of by its path, and left out.
func TestUnusable(t *testing.T) {
	for _, text := range []string{`{`, `{"serving":"../x"}`, `{"left":["../x"]}`, `{"refused":{"mode":"../x"}}`} {
		dir := t.TempDir()
		path := filepath.Join(dir, factsFile)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, got, err := Open(dir)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s is told of as %v", text, err)
		}
		if !got.isEmpty() {
			t.Errorf("%s is read as %+v", text, got)
		}
	}
}

// TestAsked: what was asked for holds until the config file says another mode.
func TestAsked(t *testing.T) {
	f := Facts{}.Asks("nftables", "iptables", false)
	if got := f.Under("iptables").Wanted("iptables"); got != "nftables" {
		t.Errorf("while the file says the same: %s", got)
	}
	if got := f.Under("ipvs").Under("iptables").Wanted("iptables"); got != "iptables" {
		t.Errorf("once the file has changed and changed back: %s", got)
	}
	if got := f.Asks("iptables", "iptables", false); got.Asked != "" || got.Number != 2 {
		t.Errorf("the file's mode asked for: %+v", got)
	}
}

// TestObserved: a host without files begins with the mode that shows that it is Active, and cleans up what others show.
func TestObserved(t *testing.T) {
	for name, c := range map[string]struct {
		shown map[string]sdk.Role
		want  string
	}{
		"nothing is there":               {map[string]sdk.Role{"nftables": sdk.Absent, "iptables": sdk.Absent}, " []"},
		"none can tell":                  {map[string]sdk.Role{"nftables": 0, "iptables": 0}, " []"},
		"the wanted one serves":          {map[string]sdk.Role{"nftables": sdk.Active, "iptables": sdk.Draining}, "nftables [iptables]"},
		"another one serves":             {map[string]sdk.Role{"nftables": sdk.Absent, "iptables": sdk.Active}, "iptables []"},
		"another one, the wanted drains": {map[string]sdk.Role{"nftables": sdk.Draining, "iptables": sdk.Active}, "iptables [nftables]"},
		"a third one was being prepared": {map[string]sdk.Role{"nftables": 0, "iptables": sdk.Active, "ipvs": sdk.Standby}, "iptables [ipvs]"},
		"two serve":                      {map[string]sdk.Role{"nftables": sdk.Active, "iptables": sdk.Active}, "nftables [iptables]"},
		"two others serve":               {map[string]sdk.Role{"ipvs": sdk.Active, "iptables": sdk.Active}, "iptables [ipvs]"},
	} {
		if f := Observed("nftables", c.shown); fmt.Sprint(f.Served, " ", f.Left) != c.want {
			t.Errorf("%s: %s serves, left %v, want %s", name, f.Served, f.Left, c.want)
		}
	}
}
