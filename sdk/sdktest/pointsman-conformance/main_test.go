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
		{"--help", exitOK, "--options"},
		{"--version", exitOK, "pointsman-conformance "},
		{"", exitUsage, "the path of a plugin's binary"},
		{"a b", exitUsage, "not 2 words"},
		{"--nope x", exitUsage, "--nope"},
		{"--run ( x", exitUsage, "missing closing )"},
		{"-o csv x", exitUsage, "table or json"},
		{filepath.Join(t.TempDir(), "none"), exitFailed, "none"},
	} {
		var out, errs strings.Builder
		exit := run(t.Context(), strings.Fields(c.words), &out, &errs)
		if text := out.String() + errs.String(); exit != c.exit || !strings.Contains(text, c.says) {
			t.Errorf("%q: exit %d, want %d and %q:\n%s", c.words, exit, c.exit, c.says, text)
		}
	}
}
