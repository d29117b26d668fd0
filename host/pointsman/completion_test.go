// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCompletionWithoutAHost offers what needs no host to be known, and is silent about the rest.
func TestCompletionWithoutAHost(t *testing.T) {
	dir := t.TempDir()
	fakePlugin(t, dir, "acme", "exit 1")
	here := []string{"--plugin-dir", dir, "--admin-socket", filepath.Join(dir, "nobody.sock")}
	const nothing, files, folders = `^:4\n$`, `^:0\n$`, `^:16\n$`
	for words, want := range map[string]string{
		"statu":                    `^status\t`,
		"status ":                  nothing,
		"status -o ":               `^table\njson\nyaml\n:36\n$`,
		"version --output=":        `^table\njson\nyaml\n:36\n$`,
		"status --wait ":           nothing,
		"status now ":              nothing,
		"run --log-level ":         `^trace\ndebug\ninfo\nwarn\nerror\n:36\n$`,
		"run --log-format ":        `^text\njson\n:36\n$`,
		"run --mode ":              `(?s)^acme\n.*auto\t.*:4\n$`,
		"config show --mode au":    `^auto\t.*\n:4\n$`,
		"plan --mode a":            `^acme\n:4\n$`,
		"mode swap ":               `^acme\n`,
		"mode swap acme ":          nothing,
		"plugin info ac":           `^acme\n:4\n$`,
		"plugin check ./":          files,
		"plugin restart ac":        `^acme\n:4\n$`,
		"plugin logs ac":           `^acme\n:4\n$`,
		"config validate ":         `^yaml\nyml\n:8\n$`,
		"status --config ":         `^yaml\nyml\n:8\n$`,
		"run --files ":             files,
		"run --kubeconfig ":        files,
		"status --admin-socket ":   files,
		"status --plugin-dir ":     folders,
		"run --state-dir ":         folders,
		"explain ":                 `^node\t.*\noutside:\t.*\npod:\t.*\n:6\n$`,
		"explain node ":            nothing,
		"service show ":            nothing,
		"service list ":            nothing,
		"service list -n ":         nothing,
		"explain node 10.0.0.1:1 ": nothing,
	} {
		exit, stdout, _ := do(t, append([]string{"__complete"}, append(here, strings.Split(words, " ")...)...)...)
		if exit != exitOK || !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("%q is completed by exit %d %q, want %q", words, exit, stdout, want)
		}
	}
}
