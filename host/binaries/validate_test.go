// SPDX-License-Identifier: Apache-2.0

package binaries

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

// Answers to check.
const (
	runs  = `{"runs":true,"notes":[]}`
	unfit = `{"runs":false,"why":"no such table"}`
)

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
