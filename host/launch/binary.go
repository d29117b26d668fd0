// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// A Binary is a plugin's file, which stays open after it was checked. On Linux, Command executes this open file even if
// another file replaced it at its path. Scripts are the exception, because their interpreter opens the path again.
type Binary struct {
	path   string
	file   *os.File
	script bool
}

// OpenBinary opens the plugin at path. It returns an error if a user can change the file who cannot change the host:
// the file must belong to root, this user or the owner of the host's binary, and must not be writable by others or by a
// foreign group. The same holds for all its parent directories. On Windows that is the administrator's responsibility.
// If sum is not empty, it must be the SHA-256 of the content, in hexadecimal.
func OpenBinary(path, sum string) (*Binary, error) {
	abs, err := filepath.Abs(path) // the plugin has a different working directory
	b := &Binary{path: abs}
	if err == nil {
		b.file, err = os.Open(abs)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("there is no such file; install the plugin there, or set its path in the config: %w", os.ErrNotExist)
	}
	if err == nil {
		err = b.check(sum)
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

func (b *Binary) check(sum string) error {
	info, err := b.file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return errors.New("it is a directory, not a plugin")
	}
	if err := executable(b.path, info); err != nil {
		return err
	}
	if err := checkWriters(b.path, info); err != nil {
		return err
	}
	start := make([]byte, 2)
	n, _ := b.file.ReadAt(start, 0) // an error means no script; the kernel reports what is wrong with the file
	b.script = string(start[:n]) == "#!"
	if sum == "" {
		return nil
	}
	if b.script {
		return errors.New("a script cannot be checked, because its interpreter opens it again; remove its sha256, or use a program")
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, b.file); err != nil {
		return fmt.Errorf("read it for its checksum: %w", err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); !strings.EqualFold(got, sum) {
		return fmt.Errorf("its SHA-256 is %s, and %s is expected; put the right file there, or the new sum in the config", got, sum)
	}
	return nil
}

// inheritedEnv lists the environment variables that plugins inherit: those that any program needs, those that Go's
// runtime reads, and the path of the iptables lock, which must be the same for all programs of a node.
var inheritedEnv = []string{
	"PATH", "HOME", "TMPDIR", "LANG", "TZ",
	"SystemRoot", "TEMP", "TMP", "USERPROFILE", "ProgramData", // Windows
	"GOTRACEBACK", "GODEBUG", "GOMEMLIMIT", "GOMAXPROCS", "GOGC", "GOCOVERDIR",
	"XTABLES_LOCKFILE",
}

// Command returns a command that runs the binary. Start the command before Close. It inherits only the variables in
// inheritedEnv, because other variables may contain credentials.
func (b *Binary) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.executed(), args...)
	cmd.Args[0] = b.path
	cmd.Env = []string{}
	for _, name := range inheritedEnv {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

// executed returns the path to execute: on Linux, that of the open file. It is not usable for
// scripts, because the file is closed before the interpreter opens it.
func (b *Binary) executed() string {
	if b.script || runtime.GOOS != "linux" {
		return b.path
	}
	return fmt.Sprintf("/proc/self/fd/%d", b.file.Fd())
}

// Close closes the file. Processes started from it continue.
func (b *Binary) Close() error { return b.file.Close() }
