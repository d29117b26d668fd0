// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
)

// A formerHost has the files that a host left on disk.
type formerHost struct {
	*testing.T
	host *config.Host
}

func newFormerHost(t *testing.T) formerHost {
	t.Helper()
	s := formerHost{t, &config.Host{Mode: "iptables", StateDir: t.TempDir(), PluginDirs: []string{t.TempDir()}}}
	for _, mode := range []string{"iptables", "userspace"} {
		s.write(filepath.Join(s.host.PluginDirs[0], launch.Prefix+mode), "#!/bin/sh\n")
	}
	return s
}

func (s formerHost) write(file, text string) {
	s.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o755)); err != nil {
		s.Fatal(err)
	}
}

// script installs a shell script with these cases of its arguments as the binary of a mode.
func (s formerHost) script(mode, cases string) {
	s.Helper()
	s.write(filepath.Join(s.host.PluginDirs[0], launch.Prefix+mode), "#!/bin/sh\ncase \"$*\" in\n"+cases+"\n*) exit 64;;\nesac\n")
}

// modeFile returns the path of the state file.
func modeFile(h *config.Host) string { return filepath.Join(h.StateDir, "mode.json") }

// next begins the next host.
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

// TestBeginsWithoutPlugin: a host whose mode has no plugin does not begin, unless an earlier host
// served in a mode that has one.
func TestBeginsWithoutPlugin(t *testing.T) {
	s := newFormerHost(t)
	s.host.Mode = "nosuch"
	set := New(Settings{Begun: s.host, Now: func() *config.Host { return s.host }, Tracker: track.New(nil), Reports: report.New(time.Now), Log: hclog.NewNullLogger()})
	err := set.Begin()
	if !errors.Is(err, ErrNoPlugin) || !strings.Contains(err.Error(), "found for other modes: iptables") {
		t.Errorf("Begin: %v", err)
	}
	s.write(modeFile(s.host), `{"serving":"iptables"}`)
	if got := s.next().Mode(); got != "iptables" {
		t.Errorf("Begin starts with %s", got)
	}
}

// TestBegin begins with the state that the previous host left.
func TestBegin(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"nothing":            {"", "iptables; iptables is wanted, left []"},
		"a mode that serves": {`{"serving":"userspace"}`, "userspace; iptables is wanted, left []"},
		"a requested mode":   {`{"serving":"iptables","asked":"userspace","file":"iptables"}`, "iptables; userspace is wanted, left []"},
		"a request under another mode of the file": {`{"serving":"iptables","asked":"userspace","file":"ipvs"}`, "iptables; iptables is wanted, left []"},
		"a mode whose plugin was removed":          {`{"serving":"ipvs"}`, "iptables; iptables is wanted, left [ipvs]"},
		"a mode that must be cleaned up":           {`{"serving":"userspace","left":["iptables"]}`, "userspace; iptables is wanted, left [iptables]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFormerHost(t)
			if c.file != "" {
				s.write(modeFile(s.host), c.file)
			}
			set := s.next()
			m := set.Show()
			if got := fmt.Sprintf("%s; %s is wanted, left %v", m.Mode, m.Wanted, m.Left); got != c.want {
				t.Errorf("begins with %s, want %s", got, c.want)
			}
		})
	}
}
