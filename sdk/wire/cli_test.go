// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"strings"
	"testing"
)

// TestCLI checks the output and the exit code of each verb.
func TestCLI(t *testing.T) {
	tests := []struct {
		args           string
		exit           int
		stdout, stderr string // a part of the output; "" means that there is none
	}{
		{"", 64, "", "is a dataplane plugin of Pointsman. A host starts it"},
		{"--help", 0, "cleanup        remove everything", ""},
		{"--version", 0, "pointsman-dataplane-subject 0.0.1 (built from " + Build() + ", wire major 1)\n", ""},
		{"describe", 0, `"name": "subject"`, ""},
		{"describe -o json", 0, `"features": [`, ""},
		{"describe -o yaml", 64, "", "neither text nor json"},
		{"describe it", 64, "", `unexpected "it"`},
		{"check", 0, `"it does not serve ipv6"`, ""},
		{"check -o json", 0, "\"notes\": [\n    \"a chain drops\"\n  ]", ""},
		{`check -o json --options {"Refuse":true}`, 1, `"why": "options.refuse: it was asked for; try: asking for less"`, "this node cannot run it"},
		{"check -o json", 0, `"swapImpact": "2 flows"`, ""},
		{"check -o yaml", 64, "", "neither text nor json"},
		{"cleanup", 0, "removed chain A\n", ""},
		{"cleanup -o json", 0, "\"dryRun\": false,\n  \"removed\": [\n    \"chain A\"\n  ]", ""},
		{"cleanup --dry-run -o json", 0, "\"dryRun\": true,\n  \"removed\": [\n    \"chain A\"\n  ]", ""},
		{"cleanup -o yaml", 64, "", "neither text nor json"},
		{"cleanup --dry-run", 0, "would remove chain A\n", ""},
		{"cleanup --kube-proxy", 0, "removed chain KUBE\n", ""},
		{"cleanup --dry-run --kube-proxy", 0, "would remove chain KUBE\n", ""},
		{"cleanup --everything", 64, "", "flag provided but not defined"},
		{"dance", 64, "", `no such verb "dance"`},
		{"alive", 64, "", "want the address that it listens on"},
		{"alive tcp://x", 64, "", "want unix:///absolute/path"},
		{"alive unix:///nowhere/s", 1, "", "attach to unix:///nowhere/s"},
		{"--listen", 64, "", "want unix:///absolute/path"},
		{"--listen unix:///nowhere/s --allow-uid no-such-user", 64, "", `there is no user "no-such-user" here`},
		{"--listen unix:///nowhere/s now", 64, "", `unexpected "now"`},
		{"--listen tcp://x", 64, "", "want unix:///absolute/path"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			cmd := part("serve", strings.Fields(test.args)...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run() // the exit code has the result
			if exit := cmd.ProcessState.ExitCode(); exit != test.exit {
				t.Errorf("exit %d; want %d", exit, test.exit)
			}
			for _, out := range []struct{ got, want string }{{stdout.String(), test.stdout}, {stderr.String(), test.stderr}} {
				if !strings.Contains(out.got, out.want) || out.want == "" && out.got != "" {
					t.Errorf("got %q; want %q", out.got, out.want)
				}
			}
		})
	}
}
