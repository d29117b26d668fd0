// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
)

// scripted is a plugin with a fixed answer to check.
const scripted = "#!/bin/sh\necho '%s'\n"

// validated returns the result of Validate for a file with this body, beside a plugin acme with this answer
// to check.
func validated(t *testing.T, answer, body string) (problems, notes []string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell: the plugins here are scripts")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, launch.Prefix+"acme"), fmt.Appendf(nil, scripted, answer), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "host.yaml")
	text := "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\npluginDirs: [.]\nsource: {files: {path: .}}\n" + body
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	wrong, odd := Validate(t.Context(), h)
	strip := func(all []string) []string {
		for i, text := range all {
			all[i] = strings.ReplaceAll(strings.TrimPrefix(text, dir+"/"), dir, "DIR")
		}
		return all
	}
	return strip(phrase.Texts(wrong)), strip(phrase.Texts(odd))
}

// TestValidate asks the plugins what is wrong with their settings in a file.
func TestValidate(t *testing.T) {
	const others = "there is no pointsman-dataplane-acne in DIR; found for other modes: acme"
	for name, c := range map[string]struct {
		answer, body    string
		problems, notes []string
	}{
		"all is well": {runs, "mode: acme\nplugins: {acme: {options: {depth: 2, shape: flat, names: [a], own: {\"on\": true}}}}\n", nil, nil},
		"the mode":    {runs, "mode: acne\n", []string{"host.yaml: mode: " + others}, nil},
		"a section":   {runs, "mode: acme\nplugins:\n  acne: {options: {depth: 2}}\n", nil, []string{"host.yaml: plugins.acne: " + others}},
		"an option": {`{"runs":false,"why":"options.depth: 2 is too deep; try: 1","field":"options.depth"}`, "mode: acme\nplugins:\n  acme:\n    options:\n      depth: 2\n",
			[]string{"host.yaml: plugins.acme.options.depth: 2 is too deep; try: 1"}, nil},
		"options of a mode that may be chosen": {`{"runs":false,"why":"options.depth: 2 is too deep","field":"options.depth"}`, "mode: auto\nplugins: {acme: {options: {depth: 2}}}\n", []string{"host.yaml: plugins.acme.options.depth: 2 is too deep"}, nil},
		"this node":                            {unfit, "mode: acme\n", []string{"host.yaml: mode: acme cannot run on this node: no such table"}, nil},
		"not for the mode":                     {unfit, "mode: auto\nplugins: {acme: {options: {depth: 2}}}\n", nil, []string{"host.yaml: plugins.acme: acme cannot run on this node: no such table"}},
		"a plugin at an address":               {runs, "mode: acme\nplugins: {acme: {address: \"unix:///run/a.sock\", options: {dept: 2}}}\n", nil, []string{"host.yaml: plugins.acme.address: the options are not checked, because something else runs the plugin; try: on its machine: pointsman-dataplane-acme check --options JSON"}},
	} {
		t.Run(name, func(t *testing.T) {
			problems, notes := validated(t, c.answer, c.body)
			if !slices.Equal(problems, c.problems) || !slices.Equal(notes, c.notes) {
				t.Errorf("problems:\n%s\nwant\n%s\nnotes: %q, want %q", strings.Join(problems, "\n"), strings.Join(c.problems, "\n"), notes, c.notes)
			}
		})
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
