// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// programs sets PATH to a folder that has only these programs: shell scripts by name.
func programs(t *testing.T, does map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range does {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// If the node lacks something, Configure refuses and says which command fixes it.
func TestMissingRequirements(t *testing.T) {
	modules := func(t *testing.T) error { return hasModules(t.Context(), "none") }
	for _, c := range []struct {
		what     string
		programs map[string]string
		probe    func(*testing.T) error
		try      string
	}{
		{"no such scheduler", map[string]string{"modprobe": `[ "$3" != ip_vs_none ]`}, modules, "install it, and then: modprobe ip_vs_none"},
		{"all modules can be loaded", map[string]string{"modprobe": "exit 0"}, modules, ""},
		{"modprobe is missing", nil, modules, ""},
		{"modprobe knows no module", map[string]string{"modprobe": "exit 1"}, modules, ""},
		{"no module for our device", map[string]string{"modprobe": `[ "$3" != dummy ]`}, modules, "install it, and then: modprobe dummy"},
		{"no module for our rules", map[string]string{"modprobe": `[ "$3" != xt_set ]`}, modules, "install it, and then: modprobe xt_set"},
		{"no IPVS", map[string]string{"modprobe": "exit 1"}, func(t *testing.T) error {
			if isIPVSLoaded() {
				t.Skip("needs a kernel without IPVS")
			}
			return hasIPVS(t.Context())
		}, "modprobe ip_vs"},
	} {
		t.Run(c.what, func(t *testing.T) {
			programs(t, c.programs)
			for _, module := range []string{"dummy", "xt_set"} {
				if _, err := os.Stat("/sys/module/" + module); err == nil && strings.HasSuffix(c.try, module) {
					t.Skipf("needs a kernel that has not loaded %s", module)
				}
			}
			err := c.probe(t)
			refusal := new(sdk.Refusal)
			switch {
			case c.try == "" && err != nil:
				t.Errorf("Configure refuses: %v", err)
			case c.try != "" && (!errors.As(err, &refusal) || refusal.Try != c.try):
				t.Errorf("got %v, want an error with %q", err, c.try)
			}
		})
	}
}

// Configure rejects invalid options and names the mistake.
func TestOptions(t *testing.T) {
	for text, wrong := range map[string]string{
		``: "", `{}`: "",
		`{"scheduler":"mh","strictARP":true,"excludeCIDRs":["10.0.0.0/8"],"tcpTimeout":"15m"}`: "",
		`{"schedular":"mh"}`:          "schedular",
		`{"scheduler":"fair"}`:        "fair",
		`{"tcpTimeout":"250ms"}`:      "whole seconds",
		`{"udpTimeout":"-1s"}`:        "whole seconds",
		`{"excludeCIDRs":["10.0.0"]}`: "10.0.0",
		`{"backend":"ebpf"}`:          "ebpf",
	} {
		_, err := parseOptions([]byte(text))
		switch refusal := new(sdk.Refusal); {
		case wrong == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case wrong != "" && (!errors.As(err, &refusal) || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: %v; it should say %q", text, err, wrong)
		}
	}
}
