// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk/statefile"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A Command says how to start a plugin's process.
type Command struct {
	Env []string // beyond what every plugin gets: PATH, HOME, TMPDIR, LANG, TZ and Go's own

	// SocketDir is where a directory for the socket is made. It is made too if it
	// is missing. Empty: the system's for temporary files.
	SocketDir string

	// StateDir is the plugin's own directory, and its working directory. It is made
	// if it is missing. Empty: the root.
	StateDir string

	// OOMScoreAdj is by how much the kernel prefers the process, or spares it, when memory
	// runs out. Nil: as the host's.
	OOMScoreAdj *int

	// Log is called with each line that the process prints to stderr, from a goroutine of its own, and never again once
	// Exited is closed. It must return soon. Nil: the lines are dropped.
	Log func(line string)

	// Timeout is how long the process may take until its handshake. Zero: ten seconds, which is twice what docs/wire.md
	// asks for, because a node that starts has much else to do.
	Timeout time.Duration
}

const launchTimeout = 10 * time.Second

// prepare makes the directories, so that what fails before there is a process has an error of its own.
func (c Command) prepare() error {
	sockets := cmp.Or(c.SocketDir, os.TempDir())
	if n := len(sockets) + socketName; n > wire.MaxSocketPath && runtime.GOOS != "windows" { // there it listens on a loopback port
		return fmt.Errorf("socket directory %s: a path in it would have %d bytes, and a socket's may have %d; use a shorter one",
			sockets, n, wire.MaxSocketPath)
	}
	if err := errors.Join(statefile.MakeDir(sockets), statefile.MakeDir(c.stateDir())); err != nil {
		return err
	}
	if c.SocketDir != "" {
		if err := statefile.Guarded(c.SocketDir); err != nil {
			return fmt.Errorf("its socket cannot be made: %w", err)
		}
	}
	return nil
}

func (c Command) stateDir() string { return cmp.Or(c.StateDir, string(filepath.Separator)) }

// socketName is the length of what go-plugin appends to the socket directory:
// "/plugin-dirN/pluginN", with numbers of up to ten digits.
const socketName = len("/plugin-dir/plugin") + 20

// A Binary is a plugin's file, held open from the moment it was checked: on Linux
// that very file is what Command executes, whatever its path leads to by then. A
// script is the exception, because its interpreter opens it by its path again.
type Binary struct {
	path   string
	file   *os.File
	script bool
}

// OpenBinary opens the plugin at path, and checks that it cannot be changed by a user that could not as well change
// the host: that it belongs to root, to this user or to the owner of the host's binary, that neither others nor a
// foreign group may write to it, and that the same goes for every directory that leads to it; on Windows that is the
// administrator's to see to. With a sum, the SHA-256 of its content in hexadecimal, its content must have that.
func OpenBinary(path, sum string) (*Binary, error) {
	abs, err := filepath.Abs(path) // the plugin has another working directory
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
	hash := sha256.New()
	if _, err := io.Copy(hash, b.file); err != nil {
		return fmt.Errorf("read it for its checksum: %w", err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); !strings.EqualFold(got, sum) {
		return fmt.Errorf("its SHA-256 is %s, and %s is expected; put the right file there, or the new sum in the config", got, sum)
	}
	return nil
}

// passed are the variables of the environment that plugins get: what any program needs,
// what Go's runtime reads, and where the lock of iptables' tables is, which has to be the
// same one for all programs of a node.
var passed = []string{
	"PATH", "HOME", "TMPDIR", "LANG", "TZ",
	"SystemRoot", "TEMP", "TMP", "USERPROFILE", "ProgramData", // of Windows
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

// executed returns the path to execute: on Linux the open file itself. It is closed when the
// program begins, which is why a script's interpreter needs the path.
func (b *Binary) executed() string {
	if b.script || runtime.GOOS != "linux" {
		return b.path
	}
	return fmt.Sprintf("/proc/self/fd/%d", b.file.Fd())
}

// Close closes the file. What was started from it runs on.
func (b *Binary) Close() error { return b.file.Close() }

// SweepSockets removes from dir, a Command's SocketDir, the directories of plugins whose host ended before it was
// connected. Where something listens, nothing is removed.
func SweepSockets(dir string) {
	made, _ := filepath.Glob(filepath.Join(dir, "plugin-dir*")) // the pattern is valid
	for _, m := range made {
		if !listens(m) {
			_ = os.RemoveAll(m) // a leftover does no harm
		}
	}
}

func listens(dir string) bool {
	sockets, _ := filepath.Glob(filepath.Join(dir, "plugin*")) // the pattern is valid
	return slices.ContainsFunc(sockets, func(socket string) bool {
		conn, err := net.DialTimeout("unix", socket, time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}
