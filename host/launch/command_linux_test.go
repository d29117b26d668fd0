// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/test/actor"
)

// pluginFile writes a plugin's binary into a new directory.
func pluginFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pointsman-dataplane-acme")
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// copied returns the path and checksum of a copy of this test binary, which can play each of the parts in main_test.go.
func copied(t *testing.T) (path, sum string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(content)
	return pluginFile(t, string(content)), hex.EncodeToString(hash[:])
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestBinaryThatOthersMayChangeIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, path string)
		want string // part of the error; empty if there is none
	}{
		{"as installed", func(*testing.T, string) {}, ""},
		{"everyone may write", func(t *testing.T, path string) { chmod(t, path, 0o777) }, "is writable by everyone"},
		{"everyone may replace", func(t *testing.T, path string) { chmod(t, filepath.Dir(path), 0o777) }, "chmod o-w " + "DIR"},
		{"everyone may replace its directory", func(t *testing.T, path string) { chmod(t, filepath.Dir(filepath.Dir(path)), 0o777) }, "chmod o-w UP"},
		{"everyone may add", func(t *testing.T, path string) { chmod(t, filepath.Dir(path), 0o777|os.ModeSticky) }, ""},
		{"this group may write", func(t *testing.T, path string) { chmod(t, path, 0o775) }, ""},
		{"nobody may run", func(t *testing.T, path string) { chmod(t, path, 0o644) }, "chmod +x"},
		{"someone else's", func(t *testing.T, path string) { chown(t, path, 4711, 0) }, "belongs to user 4711"},
		{"the directory belongs to another user", func(t *testing.T, path string) { chown(t, filepath.Dir(path), 4711, 0) }, "directory DIR belongs to user 4711"},
		{"another group's", func(t *testing.T, path string) { chown(t, path, 0, 4711); chmod(t, path, 0o775) }, "by group 4711"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := pluginFile(t, "\x7fELF")
			c.make(t, path)
			b, err := OpenBinary(path, "")
			if err == nil {
				b.Close()
			}
			dir := filepath.Dir(path)
			want := strings.NewReplacer("DIR", dir, "UP", filepath.Dir(dir)).Replace(c.want)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("OpenBinary = %v; want %q", err, want)
			}
		})
	}
}

func chown(t *testing.T, path string, uid, gid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root gives files away")
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// For a link, both its directory and that of its target are checked.
func TestLinkedBinaryChecksBothDirectories(t *testing.T) {
	target := pluginFile(t, "\x7fELF")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for _, open := range []string{filepath.Dir(link), filepath.Dir(target)} {
		chmod(t, open, 0o777)
		if b, err := OpenBinary(link, ""); err == nil || !strings.Contains(err.Error(), "directory "+open) {
			t.Errorf("with %s open to everyone, OpenBinary = %v, %v", open, b, err)
		}
		chmod(t, open, 0o755)
	}
}

func TestChecksum(t *testing.T) {
	path, sum := copied(t)
	c := part("serve", shortDir(t))
	c.Path, c.SHA256 = path, strings.ToUpper(sum)
	r, err := c.launch(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	c.SHA256 = strings.Repeat("ab", 32)
	if _, err := c.launch(soon(t)); err == nil || !strings.Contains(err.Error(), "its SHA-256 is "+sum+", and abab") {
		t.Errorf("with another sum, Launch = %v", err)
	}
	if _, err := OpenBinary(pluginFile(t, "#!/bin/sh\n"), sum); err == nil || !strings.Contains(err.Error(), "script") {
		t.Errorf("for a script with a sum, OpenBinary = %v", err)
	}
}

// The file that was checked is executed, even if another file has replaced it at its path.
func TestCheckedFileIsExecuted(t *testing.T) {
	path, sum := copied(t)
	b, err := OpenBinary(path, sum)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := os.Rename(pluginFile(t, "#!/bin/sh\necho another\n"), path); err != nil {
		t.Fatal(err)
	}
	cmd := b.Command(context.Background())
	cmd.Env = append(cmd.Env, actor.PartEnv+"=exits")
	out, _ := cmd.CombinedOutput()
	if got := string(out); !strings.Contains(got, "/dev/null0") {
		t.Errorf("it printed %q", got)
	}
}

func TestScriptRuns(t *testing.T) {
	b, err := OpenBinary(pluginFile(t, "#!/bin/sh\necho $0\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if out, err := b.Command(context.Background()).Output(); err != nil || strings.TrimSpace(string(out)) != b.path {
		t.Errorf("it printed %q, %v", out, err)
	}
}

// pkill finds a plugin by its name.
func TestProcessHasItsName(t *testing.T) {
	path, _ := copied(t)
	c := part("serve", shortDir(t))
	c.Path = path
	r, err := c.launch(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Stop() })
	proc := filepath.Join("/proc", strconv.Itoa(r.Hello().PID))
	if comm, err := os.ReadFile(filepath.Join(proc, "comm")); err != nil || string(comm) != "pointsman-datap\n" {
		t.Errorf("comm is %q, %v", comm, err)
	}
	if exe, err := os.Readlink(filepath.Join(proc, "exe")); err != nil || exe != path {
		t.Errorf("exe is %q, %v", exe, err)
	}
}
