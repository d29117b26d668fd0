// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
)

// TestVerb runs verbs of a plugin's binary: the answer is JSON, also of a failed verb, and stderr is the
// reason of a failure. A binary with an unexpected checksum is not run.
func TestVerb(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell: the plugin here is a script")
	}
	path := filepath.Join(t.TempDir(), launch.Prefix+"talker")
	const script = `#!/bin/sh
case "$*" in
"cleanup --dry-run -o json") echo '{"dryRun":true,"removed":["a chain","a set"]}';;
"cleanup --dry-run -o json --kube-proxy") echo '{"removed":["a chain"],"error":"the lock is held"}'; exit 1;;
"check -o json") echo '{"runs":true,"notes":["a chain drops"]}';;
"check -o json --options {}") echo '{"runs":false,"why":"no ip_vs"}'; echo cannot >&2; exit 1;;
"check -o json --options 1") echo it runs;;
"check -o json --options 2") echo out of memory >&2; exit 1;;
*) echo no such verb >&2; exit 64;;
esac
`
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got, err := WouldRemove(ctx, path, ""); err != nil || !slices.Equal(got, []string{"a chain", "a set"}) {
		t.Errorf("it would remove %q: %v", got, err)
	}
	if got, err := WouldRemove(ctx, path, "", "--kube-proxy"); err == nil || err.Error() != "the lock is held" || len(got) != 1 {
		t.Errorf("it would remove %q: %v", got, err)
	}
	if _, err := WouldRemove(ctx, path, "", "--by-hand"); !errors.Is(err, errNoAnswer) {
		t.Errorf("a binary that does not know a flag: %v", err)
	}
	for options, want := range map[string]struct{ why, note, err string }{
		"": {note: "a chain drops"}, "{}": {why: "no ip_vs"}, "1": {err: `no answer in JSON: it printed "it runs" to stdout`}, "2": {err: "out of memory"}, "3": {err: "no answer in JSON"},
	} {
		c, err := Check(ctx, launch.Found{Path: path}, config.Plugin{Options: []byte(options)})
		if c.Why != want.why || strings.Join(c.Notes, "") != want.note || (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("with the options %q the check is %+v, %v; want %+v", options, c, err, want)
		}
	}
	for name, c := range map[string]struct{ path, sum, verb, want string }{
		"it complains":       {path, "", "dance", path + " dance: exit status 64: no such verb"},
		"it must be certain": {path, strings.Repeat("0", 64), "cleanup", "a script cannot be checked"},
		"no file":            {path + "-gone", "", "cleanup", "no such file"},
	} {
		if _, err := Run(ctx, c.path, c.sum, c.verb); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
