// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

func TestByHand(t *testing.T) {
	tests := []struct {
		args           string
		exit           int
		stdout, stderr string // what must be in it; "": it is empty
	}{
		{"", 64, "", "is a dataplane of Pointsman: a host starts it"},
		{"--help", 0, "cleanup        removes every trace", ""},
		{"--version", 0, "pointsman-dataplane-subject 0.0.1 (wire major 1)", ""},
		{"describe", 0, "serves:   ipv4, ipv6, udp", ""},
		{"describe -o json", 0, `"features": [`, ""},
		{"describe -o yaml", 64, "", "neither text nor json"},
		{"describe it", 64, "", `unexpected "it"`},
		{"check", 0, "but here it does not serve ipv6", ""},
		{`check --options {"Refuse":true}`, 1, "", "this node cannot run it: options.refuse: it was asked for; try: asking for less"},
		{"cleanup", 0, "removed chain A\n", ""},
		{"cleanup --dry-run --kube-proxy", 0, "would remove chain KUBE", ""},
		{"cleanup --everything", 64, "", "flag provided but not defined"},
		{"dance", 64, "", `no such verb "dance"`},
		{"--listen", 64, "", "want one address"},
		{"--listen tcp://x", 64, "", "want unix:///absolute/path"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			exit := byHand(subjectDescription(), &subject{}, strings.Fields(test.args), &stdout, &stderr)
			if exit != test.exit {
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

// The real thing: the exit reaches the shell.
func TestByHandExits(t *testing.T) {
	c := part("serve", "")
	cmd := exec.Command(c.Path)
	cmd.Env = append(os.Environ(), c.Env...)
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != exitUsage || !strings.Contains(string(out), "mode: subject") {
		t.Errorf("exit %d: %s", code, out)
	}
}

func TestSkewNamesWhatFits(t *testing.T) {
	tests := []struct {
		hello Hello
		want  string // "": it fits
	}{
		{Hello{Name: "x", Version: "9", Majors: []uint32{1}}, ""},
		{Hello{Name: "x", Version: "9", Majors: []uint32{1, 2}}, ""},
		{Hello{Name: "x", Version: "9", Majors: []uint32{2, 3}, Needs: needs(2)}, "plugin x 9 speaks major 2 and 3 of the wire, this host speaks 1: use a plugin built with an sdk of major 1 (the oldest that fits is 0.1.0), or pointsman 2.0.0 or later as the host; the plugin says: it speaks major 2 of the wire, which needs pointsman 2.0.0 or later"},
		{Hello{Name: "x", Version: "9", Majors: []uint32{0}}, "plugin x 9 speaks major 0 of the wire, this host speaks 1: use a plugin built with sdk 0.1.0 or later"},
		{Hello{Name: "x", Version: "9"}, "plugin x 9 speaks major none of the wire, this host speaks 1: use a plugin built with an sdk of major 1 (the oldest that fits is 0.1.0)"},
	}
	for _, test := range tests {
		err := test.hello.fits()
		if got := errorText(err); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNarrowed(t *testing.T) {
	all := sdk.Description{Features: []sdk.Feature{sdk.FeatureIPv4, sdk.FeatureIPv6}}
	here := sdk.Description{Features: []sdk.Feature{sdk.FeatureIPv4}, Limits: []sdk.Limit{sdk.LimitNoDrop}}
	got := strings.Join(narrowed(all, here), "; ")
	if got != "it does not serve ipv6; it has the limit no-drop" {
		t.Errorf("got %s", got)
	}
}
