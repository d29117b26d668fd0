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
	Path string   // the binary; never looked for in PATH
	Env  []string // beyond what every plugin gets: PATH, HOME, TMPDIR, LANG, TZ and Go's own

	// SHA256 is what the binary's content must have, in hexadecimal. Empty: anything.
	SHA256 string

	// Binary is the binary, where it is open already: Path and SHA256 are not looked at, and it stays open.
	Binary *Binary

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

// prepare opens the binary and makes the directories, so that what fails before there is a
// process has an error of its own.
func (c *Command) prepare() (*Binary, error) {
	if n := len(c.socketDir()) + socketName; n > wire.MaxSocketPath && runtime.GOOS != "windows" { // there it listens on a loopback port
		return nil, fmt.Errorf("socket directory %s: a path in it would have %d bytes, and a socket's may have %d; use a shorter one",
			c.socketDir(), n, wire.MaxSocketPath)
	}
	binary := c.Binary
	if binary == nil {
		var err error
		if binary, err = OpenBinary(c.Path, c.SHA256); err != nil {
			return nil, err
		}
	}
	c.Path = binary.path
	for _, dir := range []string{c.socketDir(), c.stateDir()} {
		if err := statefile.MakeDir(dir); err != nil {
			c.close(binary)
			return nil, err
		}
	}
	if c.SocketDir != "" {
		if err := statefile.Guarded(c.SocketDir); err != nil {
			c.close(binary)
			return nil, fmt.Errorf("its socket cannot be made: %w", err)
		}
	}
	return binary, nil
}

// close closes a binary that prepare opened.
func (c *Command) close(b *Binary) {
	if b != c.Binary {
		b.Close()
	}
}

// command returns the process to be, without what go-plugin adds to its environment.
func (c Command) command(b *Binary) *exec.Cmd {
	cmd := b.Command(context.Background()) // its end is seen to by child
	cmd.Dir = c.stateDir()
	cmd.Env = append(cmd.Env, c.Env...)
	return cmd
}

func (c Command) timeout() time.Duration { return cmp.Or(c.Timeout, launchTimeout) }

func (c Command) socketDir() string { return cmp.Or(c.SocketDir, os.TempDir()) }

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

// OpenBinary opens the plugin at path, and checks that it cannot be changed by a user that
// could not as well change the host: that it belongs to root, to this user or to
// the owner of the host's binary, that neither others nor a foreign group may write
// to it, and that the same goes for every directory that leads to it; on
// Windows that is the administrator's to see to. With a sum, the SHA-256 of its content in hexadecimal, its content must have that.
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

// socketDirPrefix is how go-plugin names the directory that it makes for a socket.
const socketDirPrefix = "plugin-dir"

// SweepSockets removes from dir, a Command's SocketDir, the directories of plugins whose host ended before it was
// connected.
// Where something listens, nothing is removed.
func SweepSockets(dir string) {
	made, _ := filepath.Glob(filepath.Join(dir, socketDirPrefix+"*")) // the pattern is valid
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
