// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/supervise"
)

// TestExplainOffline asks the mode's plugin, and another where that one cannot trace, and takes the
// kernel's verdict where all ways have the same.
func TestExplainOffline(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell: the plugins here are scripts")
	}
	const to, cannot = "10.96.0.10:80", "echo no such verb >&2; exit 64"
	way := func(verdict, to string) string {
		return fmt.Sprintf(`{"verdict":%q,"to":%q,"share":0.5,"rules":["rule of %s"]}`, verdict, to, verdict)
	}
	prints := func(ways ...string) string { return `echo '{"ways":[` + strings.Join(ways, ",") + `]}'` }
	for _, tt := range []struct {
		what, mode, other string // what the plugins' binaries do
		want              string // verdict, endpoints, remedies
		err               string
	}{
		{"endpoints", prints(way("forward", "10.0.0.1:80"), way("forward", "10.0.0.2:80")), "exit 1", "forward 10.0.0.1:80 10.0.0.2:80 ", ""},
		{"no rule", prints(way("forward", to)), "exit 1", "pass ", ""},
		{"dropped", prints(way("drop", to)), "exit 1", "drop this is what stops it: rule of drop", ""},
		{"by chance", prints(way("forward", "10.0.0.1:80"), way("drop", to)), "exit 1", "cannot tell it depends on chance: see the ways and their rules", ""},
		{"it cannot tell", `echo '{"ways":[],"cannotTell":"a rule of BPF"}'`, "exit 1", "cannot tell ", ""},
		{"another can", cannot, prints(way("reject", to)), "reject this is what stops it: rule of reject", ""},
		{"another can, and this one fails", "echo not root >&2; exit 1", prints(way("reject", to)), "reject this is what stops it: rule of reject", ""},
		{"it fails", "echo not root >&2; exit 1", cannot, "", "not root"},
		{"none can", cannot, cannot, "", "no plugin in pluginDirs can"},
	} {
		dir := t.TempDir()
		for name, does := range map[string]string{"zeta": tt.mode, "alpha": tt.other} {
			script := "#!/bin/sh\n[ \"$*\" = 'trace -o json --from 192.0.2.7 --to " + to + " --protocol tcp --origin outside' ] || { echo \"$*\" >&2; exit 1; }\n" + does + "\n"
			if err := os.WriteFile(filepath.Join(dir, supervise.Prefix+name), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		q, err := admin.ParseQuestion("outside:192.0.2.7", to)
		if err != nil {
			t.Fatal(err)
		}
		x, err := ExplainOffline(t.Context(), &config.Host{Mode: "zeta", PluginDirs: []string{dir}}, q)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %q", tt.what, err, tt.err)
			}
			continue
		}
		got := x.Verdict + " "
		for _, e := range x.Endpoints {
			got += e.Address + " "
		}
		if got += strings.Join(x.Remedies, "; "); err != nil || got != tt.want || !x.Offline || x.Kind != "Explanation" {
			t.Errorf("%s: %q, %v; want %q", tt.what, got, err, tt.want)
		}
	}
}

// TestOfflineCaller: a process of this node has the address by which the kernel would send.
func TestOfflineCaller(t *testing.T) {
	q, err := admin.ParseQuestion("node", "127.0.0.1:80/udp")
	if err != nil {
		t.Fatal(err)
	}
	x := explanation{Explanation: admin.Explanation{Question: q}}
	words, err := x.offlineWords()
	if got := strings.Join(words, " "); err != nil || got != "trace -o json --from 127.0.0.1 --to 127.0.0.1:80 --protocol udp --origin node" {
		t.Errorf("%q, %v", got, err)
	}
	var none *admin.Error
	if !errors.As(errNoTracer, &none) || none.Try == "" {
		t.Error("nothing to try")
	}
}
