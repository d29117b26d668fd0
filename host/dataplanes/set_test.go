// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
)

// TestModeRefused: a changed file is refused if its mode is new and has no plugin.
func TestModeRefused(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"acme": 0o700, "broken": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, launch.Prefix+name), []byte("#!/bin/sh\n"), mode); err != nil {
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
		if refused && err != nil && (!strings.Contains(err.Error(), "mode: there is no pointsman-dataplane-acne in "+dir)) {
			t.Errorf("the error is %v", err)
		}
	}
}

// TestInstalled finds the binary of a mode, or reports that there is none.
func TestInstalled(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, launch.Prefix+"own")
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
	if f := in.found("far"); f.Err == nil || !errors.Is(f.Err, fs.ErrNotExist) {
		t.Errorf("found %+v", f)
	}
	h.PluginDirs = nil // the host's own directory remains
	if p := in.plugin("far"); p.Address != "unix:///run/far.sock" || !filepath.IsAbs(p.Path) {
		t.Errorf("without pluginDirs: %+v", p)
	}
}

// TestFixedOptions: changes of options that the schema marks as fixed are refused.
func TestFixedOptions(t *testing.T) {
	const text = `{"properties":{"backend":{"default":"auto","x-pointsman-fixed":true},"depth":{}}}`
	for name, c := range map[string]struct {
		runs, wants string
		refused     bool
	}{
		"the same":                         {`{"backend":"nft"}`, `{"backend":"nft"}`, false},
		"another":                          {`{"backend":"nft"}`, `{"backend":"legacy"}`, true},
		"no more":                          {`{"backend":"nft"}`, ``, true},
		"the default":                      {``, `{"backend":"auto"}`, false},
		"an option that is not fixed":      {`{"depth":1}`, `{"depth":2}`, false},
		"another option that is not fixed": {`{"depth":1}`, `{"backend":"nft","depth":2}`, true},
	} {
		h := &config.Host{Plugins: map[string]config.Plugin{"acme": {Options: []byte(c.wants)}}}
		problems := fixedChanged(h, "acme", []byte(text), []byte(c.runs))
		if (len(problems) > 0) != c.refused {
			t.Errorf("%s: %v", name, problems)
		}
		if c.refused && problems[0].Field != "plugins.acme.options.backend" {
			t.Errorf("%s: the problem is about %s", name, problems[0].Field)
		}
	}
}
