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

// TestWrite: a host reads the facts of the previous host, and writes only changes.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state") // Write creates it
	path := filepath.Join(dir, factsFile)
	if err := (Facts{}).Write(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty facts were written: %v", err)
	}
	want := Facts{Served: "iptables", Left: []string{"ipvs"}}.WithRequest("userspace", "iptables", true).
		WithRefusal(Want{Mode: "userspace", Build: "2", Number: 1}, "", "no luck", time.Unix(1_700_000_000, 0).UTC(), time.Unix(1_800_000_000, 0).UTC())
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(path)
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same facts were written again: %v", err)
	}
	if err := errors.Join(os.Remove(path), want.Write(dir)); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFacts(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("after the file was lost the new file has %+v, %v", got, err)
	}
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "full"), 0o700)); err != nil { // nothing can replace it
		t.Fatal(err)
	}
	if err := want.Write(dir); err == nil || !strings.Contains(err.Error(), "which mode serves") {
		t.Errorf("in place of a folder: %v", err)
	}
}

// TestUnusable: the error for an unusable file names its path, and there are no facts.
func TestUnusable(t *testing.T) {
	for _, text := range []string{`{`, `{"serving":"../x"}`, `{"left":["../x"]}`, `{"refused":{"mode":"../x"}}`} {
		dir := t.TempDir()
		path := filepath.Join(dir, factsFile)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFacts(dir)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", text, err)
		}
		if !reflect.DeepEqual(got, Facts{}) {
			t.Errorf("%s is read as %+v", text, got)
		}
	}
}

// TestAsked: a request stays in force until the mode in the config file changes.
func TestAsked(t *testing.T) {
	f := Facts{}.WithRequest("nftables", "iptables", false)
	if got := f.WithFileMode("iptables").Wanted("iptables"); got != "nftables" {
		t.Errorf("while the file's mode is the same: %s", got)
	}
	if got := f.WithFileMode("ipvs").WithFileMode("iptables").Wanted("iptables"); got != "iptables" {
		t.Errorf("after the file's mode changed and changed back: %s", got)
	}
	if got := f.WithRequest("iptables", "iptables", false); got.Asked != "" || got.Number != 2 {
		t.Errorf("after a request for the file's mode: %+v", got)
	}
}

// TestObserved: without files, the mode that shows Active serves, and other modes with a role are left.
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
