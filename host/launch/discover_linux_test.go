// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDiscover(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		filepath.Join(first, Prefix+"ipvs"):       0o755,
		filepath.Join(first, Prefix+"broken"):     0o644,
		filepath.Join(second, Prefix+"ipvs"):      0o755,
		filepath.Join(second, Prefix+"userspace"): 0o755,
		filepath.Join(second, "README"):           0o644,

		filepath.Join(second, Prefix+"x\x1b[2J\nserving"): 0o755, // would take a terminal over
		filepath.Join(second, Prefix+"Loud"):              0o755,
	} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, mode)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(f, "x")
		f.Close()
	}
	named := map[string]string{"acme": "/nowhere/acme", "userspace": ""}
	var got []string
	for _, f := range Discover([]string{first, "/nowhere", second}, named) {
		line := f.Name + " " + f.Path
		if f.Err != nil {
			line += ": " + strings.TrimPrefix(f.Err.Error(), f.Path+": ")
		}
		got = append(got, line)
	}
	want := []string{
		"acme /nowhere/acme: there is no such file; install the plugin there, or set its path in the config: file does not exist",
		fmt.Sprintf("broken %[1]s/%[2]sbroken: it is not executable; try: chmod +x %[1]s/%[2]sbroken: permission denied", first, Prefix),
		fmt.Sprintf("ipvs %s/%sipvs", first, Prefix),
		fmt.Sprintf("userspace %s/%suserspace", second, Prefix),
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
