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
	"strings"
)

// A Binary is a plugin's file, held open from the moment it was checked: on Linux
// that very file is what Command executes, whatever its path leads to by then. A
// script is the exception, because its interpreter opens it by its path again.
type Binary struct {
	path   string
	file   *os.File
	script bool
}

// OpenBinary opens the plugin at path, and checks that no user may change it who
// could not as well change the host: that it belongs to root, to this user or to
// the owner of the host's binary, that neither others nor a foreign group may write
// to it, and that the same goes for every directory that leads to it. With a sum,
// the SHA-256 of its content in hexadecimal, its content must have that.
func OpenBinary(path, sum string) (*Binary, error) {
	path, err := filepath.Abs(path) // the plugin has another working directory
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no such file; install the plugin there, or set its path in the config: %w", os.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	b := &Binary{path: path, file: file}
	if err := b.check(sum); err != nil {
		file.Close()
		return nil, err
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
	if err := guardedWell(b.path, info); err != nil {
		return err
	}
	start := make([]byte, 2)
	n, _ := b.file.ReadAt(start, 0) // an empty file is no script, and the kernel says what else it is not
	b.script = string(start[:n]) == "#!"
	if sum == "" {
		return nil
	}
	if b.script {
		return errors.New("it is a script, which cannot be checked as it is run; remove its sha256, or make it a program")
	}
	return b.checkSum(sum)
}

func (b *Binary) checkSum(want string) error {
	hash := sha256.New()
	if _, err := io.Copy(hash, b.file); err != nil {
		return fmt.Errorf("read it for its checksum: %w", err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); !strings.EqualFold(got, want) {
		return fmt.Errorf("its SHA-256 is %s, and %s is expected; put the right file there, or the new sum in the config", got, want)
	}
	return nil
}

// passed are the variables of the environment that plugins get: what any program needs,
// what Go's runtime reads, and where the lock of iptables' tables is, which has to be the
// same one for all programs of a node.
var passed = []string{
	"PATH", "HOME", "TMPDIR", "LANG", "TZ", "SystemRoot",
	"GOTRACEBACK", "GODEBUG", "GOMEMLIMIT", "GOMAXPROCS", "GOGC", "GOCOVERDIR",
	"XTABLES_LOCKFILE",
}

// Command returns a process of the binary, to be started while it is open. Of this
// process's environment it gets what is passed, and no more: the rest may hold
// credentials.
func (b *Binary) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.executed(), args...)
	cmd.Args[0] = b.path
	cmd.Env = []string{}
	for _, name := range passed {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

// Close closes the file. What was started from it runs on.
func (b *Binary) Close() error { return b.file.Close() }
