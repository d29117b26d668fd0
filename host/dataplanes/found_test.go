// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/supervise"
)

// TestVerb runs a plugin's binary by hand: what it prints is the answer, what it complains
// of is the reason, and one with another content than expected is not run at all.
func TestVerb(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell: the plugin here is a script")
	}
	path := filepath.Join(t.TempDir(), supervise.Prefix+"talker")
	script := "#!/bin/sh\n[ \"$1\" = cleanup ] && echo would remove a chain && exit 0\necho no such verb >&2\nexit 64\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got, err := verb(ctx, path, "", "cleanup", "--dry-run"); err != nil || string(got) != "would remove a chain\n" {
		t.Errorf("cleanup printed %q: %v", got, err)
	}
	for name, c := range map[string]struct{ path, sum, verb, want string }{
		"it complains":       {path, "", "dance", path + " dance: exit status 64: no such verb"},
		"it must be certain": {path, strings.Repeat("0", 64), "cleanup", "it is a script, which nobody can check"},
		"no file":            {path + "-gone", "", "cleanup", "no such file"},
	} {
		if _, err := verb(ctx, c.path, c.sum, c.verb); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
