// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/windows"
)

// TestGuardedBinary: a plugin that another user may change is refused with what to type, by what
// the system has. This test's own binary is the host.
func TestGuardedBinary(t *testing.T) {
	up := t.TempDir()
	dir := filepath.Join(up, "plugins")
	path := filepath.Join(dir, "pointsman-dataplane-acme.exe")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("MZ"), 0o700); err != nil {
		t.Fatal(err)
	}
	me, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		t.Fatal(err)
	}
	closed := "D:P(A;;FA;;;SY)(A;;FA;;;BA)(A;;FA;;;" + me.User.Sid.String() + ")"
	const reads, writes = "(A;;0x1200a9;;;WD)", "(A;;0x1301bf;;;WD)"
	restrict(t, up, closed)
	for _, c := range []struct {
		what, file, dir, up string
		want                string // a part of the error; none: it is fine
	}{
		{"closed", "", "", "", ""},
		{"others read", reads, reads, reads, ""},
		{"others write", writes, "", "", "file " + path + " may be changed by"},
		{"others replace", "", writes, "", "folder " + dir + " may be changed by"},
		{"others replace its folder", "", "", writes, "folder " + up + " may be changed by"},
	} {
		for _, at := range []struct{ path, list string }{
			{up, closed}, {dir, closed}, // wine 8.0 has what is in a folder inherit its list, whatever that says
			{path, closed + c.file}, {dir, closed + c.dir}, {up, closed + c.up},
		} {
			restrict(t, at.path, at.list)
		}
		b, err := OpenBinary(path, "")
		if err == nil {
			b.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "(S-1-1-0)") || !strings.Contains(err.Error(), "/remove:g *S-1-1-0")) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
	restrict(t, up, closed)
	if err := errors.Join(os.Remove(path), os.Remove(dir), os.Remove(up)); err != nil { // wine 8.0 lacks what t.TempDir removes files by
		t.Error(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := OpenBinary(self, "")
	if err != nil {
		t.Fatalf("the host's own binary: %v", err)
	}
	b.Close()
}

// restrict gives a file or a folder a list of its own.
func restrict(t *testing.T, path, list string) {
	t.Helper()
	d, err := windows.SecurityDescriptorFromString(list)
	if err != nil {
		t.Fatal(err)
	}
	dacl, _, err := d.DACL()
	if err != nil {
		t.Fatal(err)
	}
	if err := windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, dacl, nil); err != nil {
		t.Fatal(err)
	}
}
