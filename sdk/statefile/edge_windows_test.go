// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/windows"
)

// TestGuarded: what MakeDir makes is closed, and what others may write to is refused with what to
// type; both by what the system has.
func TestGuarded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "Pointsman", "state")
	if err := MakeDir(dir); err != nil {
		t.Fatal(err)
	}
	if err := MakeDir(dir); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := Guarded(dir); err != nil {
		t.Errorf("what MakeDir made: %v", err)
	}
	me, err := user()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ list, want string }{
		{"D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;" + me + ")(A;;0x1200a9;;;WD)", ""},
		{"D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;" + me + ")(A;OICI;0x1301bf;;;WD)", "(S-1-1-0); try: icacls"},
	} {
		set(t, dir, c.list)
		if err := Guarded(dir); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.list, err, c.want)
		}
	}
	set(t, dir, "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;"+me+")")
	set(t, filepath.Dir(dir), "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;"+me+")(A;;0x1301bf;;;WD)")
	if err := Guarded(dir); err == nil || !strings.Contains(err.Error(), "may be replaced by") {
		t.Errorf("one above: %v", err)
	}
	set(t, filepath.Dir(dir), "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;"+me+")")
	for _, at := range []string{dir, filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} { // wine 8.0 lacks what t.TempDir removes them by
		if err := os.Remove(at); err != nil {
			t.Error(err)
		}
	}
}

// set gives dir a list.
func set(t *testing.T, dir, list string) {
	t.Helper()
	d, err := windows.SecurityDescriptorFromString(list)
	if err != nil {
		t.Fatal(err)
	}
	dacl, _, err := d.DACL()
	if err != nil {
		t.Fatal(err)
	}
	if err := windows.SetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, dacl, nil); err != nil {
		t.Fatal(err)
	}
}
