// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk"
)

// TestGroup tells which dataplane serves and which is beside it, while they come and go.
func TestGroup(t *testing.T) {
	g := &group{}
	a, b := idle("a"), idle("b")
	g.add(a)
	if g.serving() != a || g.besides() != nil {
		t.Errorf("the first one does not serve alone: %s, beside %v", g.serving().name, g.besides())
	}
	g.add(b)
	if g.serving() != a || g.besides() != b || g.named("b") != b || g.named("c") != nil {
		t.Errorf("%s serves, and beside it is %s", g.serving().name, g.besides().name)
	}
	again := idle("b")
	again.slot = "b"
	g.add(again)
	g.lead(again)
	if g.named("b") != again {
		t.Error("of two processes of one mode it is not the one that serves that has the name")
	}
	g.drop(func(p *dataplane) bool { return p == b })
	if got := g.all(); !slices.Equal(got, []*dataplane{a, again}) || g.besides() != a {
		t.Errorf("%d are left", len(got))
	}
}

// TestGroupRuns starts those that are there at its beginning, and those that join it later;
// one that retires has ended, and is not among them any more.
func TestGroupRuns(t *testing.T) {
	g := &group{}
	first, second := idle("a"), idle("b")
	g.add(first)
	ctx, cancel := context.WithCancel(t.Context())
	defer first.process.wait()
	defer cancel()
	g.run(ctx)
	g.join(second)
	if first.process.over() || second.process.over() {
		t.Error("one of them does not run")
	}
	g.retire(second)
	if !second.process.over() || len(g.all()) != 1 {
		t.Errorf("it has ended: %t, and there are %d", second.process.over(), len(g.all()))
	}
}

// TestSurveyIsDue at once, and then a while after the last one, unless the mode served since.
func TestSurveyIsDue(t *testing.T) {
	main := idle("a")
	s, now := &survey{running: &group{main: main}}, time.Now()
	if !s.due(now) {
		t.Error("the first one is not due")
	}
	s.note([]string{"chain A"}, now.Add(surveyEach))
	if s.due(now.Add(surveyEach-1)) || !s.due(now.Add(surveyEach)) {
		t.Errorf("the next one is not due after %s", surveyEach)
	}
	if got := s.Unattended(); !slices.Equal(got, []string{"chain A"}) {
		t.Errorf("%q is unattended", got)
	}
	main.served = true
	s.look(t.Context(), now)
	if got := s.Unattended(); len(got) != 0 || !s.due(now) {
		t.Errorf("the mode serves again, and %q is unattended", got)
	}
}

// TestRecordTellsOnce what it could not write down, and that it has in the end.
func TestRecordTellsOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file is in the directory's place
		t.Fatal(err)
	}
	store, _ := intent.Open(dir, "iptables")
	reports := report.New(time.Now)
	r := &record{group: &group{}, reports: reports, intent: store}
	for range 2 {
		r.change(func(i intent.Intent) intent.Intent { return i.Ask("ipvs") })
	}
	if got := r.Unwritten(); len(got) != 1 || !strings.Contains(got[0], "write down which mode serves") {
		t.Errorf("not written: %q", got)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	r.notWritten(r.writeState())
	said := reports.Counts()
	if said[report.StateNotWritten] != 1 || said[report.StateWritten] != 1 || len(r.Unwritten()) != 0 {
		t.Errorf("it said %v; not written: %q", said, r.Unwritten())
	}
}

// TestEvery calls until the context ends, and no more.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		go every(ctx, time.Second, func(time.Time) { calls++ })
		time.Sleep(3*time.Second + time.Second/2)
		cancel()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if calls != 3 {
			t.Errorf("%d calls in 3.5 s", calls)
		}
	})
}

// TestModeRefused: a changed file whose mode has no plugin is refused, with the mode that was probably meant;
// one that leaves the mode as it is, or whose plugin is there, or runs by itself, is not.
func TestModeRefused(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"acme": 0o700, "broken": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, supervise.Prefix+name), []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	now := &config.Host{Mode: "gone", PluginDirs: []string{dir}, Plugins: map[string]config.Plugin{"far": {Address: "unix:///run/far.sock"}}}
	in := installed{Settings{Begun: now, Now: func() *config.Host { return now }}}
	for mode, refused := range map[string]bool{"gone": false, "acme": false, "broken": false, "far": false, "new": false, config.Auto: false, "acne": true} {
		wanted := &config.Host{Mode: mode, PluginDirs: now.PluginDirs, Plugins: map[string]config.Plugin{"new": {Address: "unix:///run/new.sock"}}}
		err := in.modeRefused(wanted)
		if (err != nil) != refused {
			t.Errorf("mode %s: %v", mode, err)
		}
		if refused && err != nil && (!strings.Contains(err.Error(), "mode: there is no pointsman-dataplane-acne in "+dir) || !strings.Contains(err.Error(), "did you mean acme?")) {
			t.Errorf("it says %v", err)
		}
	}
}

// TestInstalled finds the binary of a mode, or says that it is not here.
func TestInstalled(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, supervise.Prefix+"own")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	h := &config.Host{PluginDirs: []string{dir}, Plugins: map[string]config.Plugin{"far": {Address: "unix:///run/far.sock"}}}
	in := installed{Settings{Begun: h, Now: func() *config.Host { return h }}}
	for mode, want := range map[string]bool{"own": true, "far": true, "none": false} {
		if in.available(mode) != want {
			t.Errorf("%s is available: %t", mode, !want)
		}
	}
	if f := in.found("own"); f.Path != path || f.Err != nil {
		t.Errorf("found %+v", f)
	}
	if f := in.found("far"); f.Err == nil || !strings.Contains(f.Err.Error(), "runs by itself") {
		t.Errorf("found %+v", f)
	}
	if why := in.preflight(t.Context(), "far").Why; why != "" {
		t.Errorf("a plugin that runs by itself is asked by its binary: %q", why)
	}
	if limits := sdk.LimitNoDrop; !strings.Contains(Meaning(limits), "refused instead") {
		t.Errorf("%s means %q", limits, Meaning(limits))
	}
}
