// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/windows"
)

// TestMakeDir: a folder is closed to other users, whatever the folder above passes on.
func TestMakeDir(t *testing.T) {
	top, err := os.MkdirTemp("", "state") // wine 8.0 lacks what t.TempDir removes its folder by
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "Pointsman", "state")
	for range 2 {
		if err := MakeDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{dir, filepath.Dir(dir), top} {
		has, err := windows.GetNamedSecurityInfo(at, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION)
		if err != nil {
			t.Fatal(err)
		}
		// Wine derives the list from the folder's mode and drops the P, which says that nothing is inherited.
		if list := has.String(); at != top && (strings.Count(list, "(A;") > 3 || strings.Contains(list, ";WD)") || strings.Contains(list, ";BU)")) {
			t.Errorf("%s is open to others: %s", at, list)
		}
		if err := os.Remove(at); err != nil {
			t.Error(err)
		}
	}
}
