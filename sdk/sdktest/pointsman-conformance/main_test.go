// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandLine holds wrong command lines, and plugins that are not there, to exit and message.
func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		words string
		exit  int
		says  string
	}{
		{"--help", exitOK, "--second"},
		{"--version", exitOK, "pointsman-conformance "},
		{"", exitUsage, "the path of a plugin's binary"},
		{"a b", exitUsage, "not 2 words"},
		{"--nope x", exitUsage, "--nope"},
		{"--run ( x", exitUsage, "missing closing )"},
		{"-o csv x", exitUsage, "table or json"},
		{"unix://x", exitUsage, "unix:///absolute/path"},
		{"--second unix:///a/s pointsman-dataplane-acme", exitUsage, "--second: a second process of a binary"},
		{"--second unix:///a/s unix:///a/s", exitUsage, "--second: that is the address of the first"},
		{"--second tcp://a unix:///a/s", exitUsage, "tcp://a"},
		{filepath.Join(t.TempDir(), "none"), exitFailed, "none"},
		{"unix:///none/at/all", exitFailed, "/none/at/all"},
	} {
		var out, errs strings.Builder
		exit := run(t.Context(), strings.Fields(c.words), &out, &errs)
		if text := out.String() + errs.String(); exit != c.exit || !strings.Contains(text, c.says) {
			t.Errorf("%q: exit %d, want %d and %q:\n%s", c.words, exit, c.exit, c.says, text)
		}
	}
}
