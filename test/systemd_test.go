// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// forms are the unit files of each form, by the names under which they are installed.
var forms = map[string]map[string]string{
	"apart":  {"pointsman.service": "pointsman.service", "pointsman-dataplane@.service": "pointsman-dataplane@.service"},
	"forked": {"pointsman.service": "pointsman-forked.service"},
}

// TestUnitsVerify has systemd-analyze verify the units, with /bin/true in the place of the binaries.
func TestUnitsVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze: on Debian, of the package systemd")
	}
	for form, units := range forms {
		dir := t.TempDir()
		var files []string
		for name, source := range units {
			text := strings.NewReplacer("/usr/bin/pointsman", "/bin/true", "/usr/libexec/pointsman/pointsman-dataplane-%i", "/bin/true").Replace(read(t, "../configs/systemd/"+source))
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			files = append(files, filepath.Join(dir, strings.Replace(name, "@.", "@iptables.", 1)))
		}
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", append([]string{"verify", "--man=no", "--recursive-errors=no"}, files...)...)
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		out, err := cmd.CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: systemd-analyze verify: %v: %s", form, err, out)
		}
	}
}
