// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/track"
)

// A formerHost is what a host left on the disk as it ended.
type formerHost struct {
	*testing.T
	host *config.Host
}

func newFormerHost(t *testing.T) formerHost {
	t.Helper()
	s := formerHost{t, &config.Host{Mode: "iptables", StateDir: t.TempDir(), PluginDirs: []string{t.TempDir()}}}
	for _, mode := range []string{"iptables", "userspace"} {
		s.write(filepath.Join(s.host.PluginDirs[0], supervise.Prefix+mode), "#!/bin/sh\n")
	}
	return s
}

func (s formerHost) write(file, text string) {
	s.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o755)); err != nil {
		s.Fatal(err)
	}
}

// script is the binary of a mode: a shell script with these cases of its words.
func (s formerHost) script(mode, cases string) {
	s.Helper()
	s.write(filepath.Join(s.host.PluginDirs[0], supervise.Prefix+mode), "#!/bin/sh\ncase \"$*\" in\n"+cases+"\n*) exit 64;;\nesac\n")
}

// modeFile is where a host finds which mode serves.
func modeFile(h *config.Host) string { return filepath.Join(h.StateDir, "mode.json") }

// next is the host that comes after, as it begins.
func (s formerHost) next() *Set {
	set := New(Settings{
		Begun: s.host, Now: func() *config.Host { return s.host },
		Tracker: track.New(nil), Reports: report.New(time.Now), Log: hclog.NewNullLogger(),
	})
	if err := set.Begin(); err != nil {
		s.Fatal(err)
	}
	return set
}

// TestBeginsWithoutPlugin: a host whose mode has no plugin here does not begin, unless an earlier
// one served by a mode that has one.
func TestBeginsWithoutPlugin(t *testing.T) {
	s := newFormerHost(t)
	s.host.Mode = "nosuch"
	set := New(Settings{Begun: s.host, Now: func() *config.Host { return s.host }, Tracker: track.New(nil), Reports: report.New(time.Now), Log: hclog.NewNullLogger()})
	err := set.Begin()
	if !errors.Is(err, ErrNoPlugin) || !strings.Contains(err.Error(), "found for other modes: iptables") {
		t.Errorf("it begins: %v", err)
	}
	s.write(modeFile(s.host), `{"serving":"iptables"}`)
	if got := s.next().Mode(); got != "iptables" {
		t.Errorf("it begins with %s", got)
	}
}

// TestBegin has a host begin with what the one before left: who serves, and who leaves
// in which role.
func TestBegin(t *testing.T) {
	for name, c := range map[string]struct {
		mode, swap string // as written down
		want       string
	}{
		"nothing":                              {want: "iptables/ active; idle"},
		"a mode that was asked for":            {mode: `{"serving":"userspace","slot":"b"}`, want: "userspace/b active; idle"},
		"a swap before traffic was switched":   {swap: `"stage":"staging","plan":{"from":"iptables","to":"userspace"}`, want: "iptables/ active, userspace/ none; staging"},
		"a swap whose traffic may be switched": {swap: `"stage":"proving","plan":{"from":"iptables","to":"userspace"}`, want: "iptables/ active, userspace/ none; proving"},
		"a swap that is decided":               {swap: `"stage":"draining","plan":{"from":"iptables","to":"userspace"}`, want: "userspace/ active, iptables/ none; draining"},
		"another binary":                       {swap: `"stage":"cutting","plan":{"from":"iptables","to":"iptables","same":true,"toSlot":"b"}`, want: "iptables/ active; idle"},
		"another binary, passed":               {swap: `"stage":"draining","plan":{"from":"iptables","to":"iptables","same":true,"toSlot":"b"}`, want: "iptables/b active; idle"},
		"another binary of a relay":            {swap: `"stage":"cutting","plan":{"from":"iptables","to":"iptables","same":true,"overlap":true,"toSlot":"b"}`, want: "iptables/ active; idle"},
		"another binary of a relay, passed":    {swap: `"stage":"draining","plan":{"from":"iptables","to":"iptables","same":true,"overlap":true,"fromSlot":"b"}`, want: "iptables/ active; idle"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFormerHost(t)
			if c.swap != "" {
				s.write(modeFile(s.host), `{"serving":"","swap":{`+c.swap+`}}`)
			}
			if c.mode != "" {
				s.write(modeFile(s.host), c.mode)
			}
			set := s.next()
			got := ""
			for i, p := range set.members {
				if i > 0 {
					got += ", "
				}
				role := "none"
				if p.want != 0 {
					role = p.want.String()
				}
				got += p.name + "/" + p.slot + " " + role
			}
			stage := set.runner.Machine().Stage.String()
			if got += "; " + stage; got != c.want {
				t.Errorf("begins with %s, want %s", got, c.want)
			}
			if next := s.next(); next.runner.Machine() != set.runner.Machine() {
				t.Errorf("the host after it begins with %+v, not %+v", next.runner.Machine(), set.runner.Machine())
			}
		})
	}
}
