// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/report"
)

// An autoNode is a node for which auto chooses a mode. Its plugins give fixed answers.
type autoNode struct {
	*testing.T
	*config.Host
	reports *report.Reporter
}

func newAutoNode(t *testing.T) autoNode {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell: the plugins here are scripts")
	}
	h := &config.Host{Mode: config.Auto, DataDir: filepath.Join(t.TempDir(), "data"), PluginDirs: []string{t.TempDir()}}
	return autoNode{t, h, report.New(time.Now)}
}

// plugin installs a plugin with an answer to check; none if the answer is empty.
func (m autoNode) plugin(mode, answer string) {
	path := filepath.Join(m.PluginDirs[0], launch.Prefix+mode)
	_ = os.Remove(path) // there may be none
	if answer == "" {
		return
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\necho '%s'\n", answer), 0o700); err != nil {
		m.Fatal(err)
	}
}

// chooser returns the Set of a new host.
func (m autoNode) chooser() *Set {
	return New(Settings{Begun: m.Host, Now: func() *config.Host { return m.Host }, Reports: m.reports})
}

const (
	runs   = `{"runs":true,"notes":[]}`
	unfit  = `{"runs":false,"why":"no such table"}`
	noting = `{"runs":true,"notes":["a chain drops"]}`
)

// TestAutoChooses chooses nftables only if it can serve, and reports no problem that iptables does
// not have.
func TestAutoChooses(t *testing.T) {
	for name, c := range map[string]struct{ nftables, iptables, mode, why string }{
		"both can":                      {runs, runs, "nftables", "this node supports it"},
		"only nftables is installed":    {runs, "", "nftables", "this node supports it"},
		"nftables is not installed":     {"", runs, "iptables", "there is no pointsman-dataplane-nftables"},
		"nftables cannot serve":         {unfit, runs, "iptables", "nftables cannot run on this node: no such table"},
		"a chain drops":                 {noting, runs, "iptables", "a chain drops"},
		"a chain drops for all":         {noting, unfit, "nftables", "this node supports it"},
		"a chain drops for one":         {noting, "", "nftables", "this node supports it"},
		"neither":                       {"", "", "iptables", "there is no pointsman-dataplane-nftables"},
		"nftables gives no such answer": {"it runs", runs, "iptables", "no answer in JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newAutoNode(t)
			m.plugin("nftables", c.nftables)
			m.plugin("iptables", c.iptables)
			auto := m.chooser()
			if mode := auto.mode(config.Auto); mode != c.mode || !strings.Contains(auto.Auto(), "auto is "+c.mode+" since ") || !strings.Contains(auto.Auto(), c.why) {
				t.Errorf("auto is %s: %q, want %s, %q", mode, auto.Auto(), c.mode, c.why)
			}
		})
	}
}

// TestAutoCannotAsk chooses iptables if nothing answers at the address of nftables.
func TestAutoCannotAsk(t *testing.T) {
	m := newAutoNode(t)
	m.Plugins = map[string]config.Plugin{"nftables": {Address: "unix:///nowhere/far.sock"}}
	if auto := m.chooser(); auto.mode(config.Auto) != "iptables" || !strings.Contains(auto.Auto(), "the nftables plugin does not answer: ") {
		t.Errorf("auto is %q", auto.Auto())
	}
}

// TestAutoKeeps: the choice outlives the host and the plugins that led to it, unless it cannot be
// read.
func TestAutoKeeps(t *testing.T) {
	m := newAutoNode(t)
	if mode := m.chooser().mode(config.Auto); mode != "iptables" {
		t.Errorf("auto is %s", mode)
	}
	m.plugin("nftables", unfit)
	m.plugin("iptables", runs)
	if mode := m.chooser().mode("userspace"); mode != "userspace" {
		t.Errorf("auto is %s, and userspace was requested", mode)
	}
	if _, err := os.Stat(m.DataDir); err == nil {
		t.Error("a choice is kept: with a mode that was asked for, or that has no plugin")
	}
	if mode := m.chooser().mode(config.Auto); mode != "iptables" {
		t.Errorf("auto is %s", mode)
	}
	m.plugin("nftables", runs)
	if mode := m.chooser().mode(config.Auto); mode != "iptables" {
		t.Errorf("after a restart auto is %s", mode)
	}
	for _, text := range []string{"", "{}", `{"mode":"../x"}`} {
		if err := os.WriteFile(filepath.Join(m.DataDir, "auto.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if mode := m.chooser().mode(config.Auto); mode != "nftables" {
			t.Errorf("with the file %q auto is %s", text, mode)
		}
	}
	if n := m.reports.Counts()[report.StateNotUsed]; n != 2 { // {} has no choice
		t.Errorf("reported %d times that it cannot be read", n)
	}
	m.DataDir = filepath.Join(m.PluginDirs[0], launch.Prefix+"nftables", "data") // below a file
	if mode := m.chooser().mode(config.Auto); mode != "nftables" || m.reports.Counts()[report.StateNotWritten] != 1 {
		t.Errorf("auto is %s, reported %v", mode, m.reports.Counts())
	}
	explicit := m.chooser()
	explicit.mode(config.Auto)
	m.Mode = "iptables"
	if said := explicit.Auto(); said != "" {
		t.Errorf("the file names a mode: %q", said)
	}
}
