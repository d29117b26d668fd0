// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAdminGroup: a member of adminGroup may ask and not act, another user may do neither, and without
// such a group there is nothing of it.
func TestAdminGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it runs verbs as other users")
	}
	t.Parallel()
	const nobody, daemon = 65534, 1
	s := newSystem(t)
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.config("adminGroup: daemon\n")
	s.start()
	s.serving()
	if err := errors.Join(os.Chmod(s.dir, 0o711), os.Chmod(s.path("host.yaml"), 0o644), os.Link(filepath.Join(binaries(t), "pointsman"), s.path("pointsman"))); err != nil {
		t.Fatal(err)
	}
	as := func(groups []uint32, words ...string) (code int, printed string) {
		c := exec.CommandContext(t.Context(), s.path("pointsman"), append(words, "--config", s.path("host.yaml"))...)
		c.Dir = "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody, Groups: groups}}
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		_ = c.Run()
		return c.ProcessState.ExitCode(), out.String()
	}
	member := []uint32{daemon}
	for _, tt := range []struct {
		groups []uint32
		words  string
		code   int
		says   string
	}{
		{member, "status", 0, "userspace"},
		{member, "service show ns/web", 0, "ns/web:p/tcp4 is served"},
		{member, "mode swap iptables", 1, "members of adminGroup may ask, and not act; try: sudo pointsman"},
		{member, "plugin restart userspace", 1, "members of adminGroup may ask, and not act"},
		{nil, "status", 3, "or as a member of adminGroup, where that is set"},
	} {
		if code, said := as(tt.groups, strings.Fields(tt.words)...); code != tt.code || !strings.Contains(said, tt.says) {
			t.Errorf("as group %d: pointsman %s exits %d, want %d with %q, and says\n%s", tt.groups, tt.words, code, tt.code, tt.says, said)
		}
	}
	for path, want := range map[string]fs.FileMode{"admin.sock": 0o600, "group": 0o750, "group/admin.sock": 0o660} {
		info, err := os.Lstat(s.path(path))
		if err != nil || info.Mode().Perm() != want || strings.HasPrefix(path, "group") && info.Sys().(*syscall.Stat_t).Gid != daemon {
			t.Errorf("%s is %v, %v; want the mode %o", path, info, err, want)
		}
	}

	s.stop()
	s.config("")
	s.start()
	s.serving()
	if _, err := os.Lstat(s.path("group/admin.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without adminGroup its socket is still there: %v", err)
	}
}

// TestUnknownAdminGroup: a group that is not there is named before anything begins.
func TestUnknownAdminGroup(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.config("adminGroup: nosuchgroup\n")
	const says = `this machine has no group "nosuchgroup"; try: groupadd --system nosuchgroup`
	for _, words := range []string{"run", "config validate"} {
		got := s.verb(strings.Fields(words)...)
		if got.code == 0 || !strings.Contains(got.err, says) {
			t.Errorf("pointsman %s exits %d, and says\n%s%s", words, got.code, got.out, got.err)
		}
	}
	if got := s.verb("config", "validate", "--file-only"); got.code != 0 {
		t.Errorf("of another node: %s", fmt.Sprint(got))
	}
}
