// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestSocketPaths: what a config is let name can be listened on, and connected to.
func TestSocketPaths(t *testing.T) {
	path := func(n int) string { return "/" + strings.Repeat("x", n-1) }
	for text, want := range map[string]string{
		"adminSocket: " + path(103) + "\n":                         "",
		"adminSocket: " + path(104) + "\n":                         "adminSocket: is 104 bytes long, and the path of this socket may have 103; use a shorter path",
		"plugins: {acme: {address: 'unix://" + path(107) + "'}}\n": "",
		"plugins: {acme: {address: 'unix://" + path(108) + "'}}\n": "plugins.acme.address: is 108 bytes long, and the path of this socket may have 107; use a shorter path",
	} {
		_, err := Load(write(t, "source: {files: {path: demo}}\n"+text), flagSet(t))
		if (err == nil) != (want == "") || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.40s…: %v, want %q", text, err, want)
		}
	}
}
