// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A Command says how to start a plugin's process.
type Command struct {
	Path string   // the binary; never looked for in PATH
	Args []string // after the name; go-plugin needs none
	Env  []string // beyond what every plugin gets: PATH, HOME, TMPDIR, LANG, TZ and Go's own

	// SocketDir is where a directory for the socket is made. It is made too if it
	// is missing. Empty: the system's for temporary files.
	SocketDir string

	// StateDir is the plugin's own directory, and its working directory. It is made
	// if it is missing. Empty: the root.
	StateDir string

	// OOMScoreAdj is what the kernel goes by when memory runs out. Nil: as the
	// host's.
	OOMScoreAdj *int

	// Timeout is how long the process may take to answer. Zero: five seconds.
	Timeout time.Duration
}

const launchTimeout = 5 * time.Second

// prepare checks what can be checked before there is a process, so that what goes
// wrong is told by its own name.
func (c *Command) prepare() error {
	path, err := filepath.Abs(c.Path) // the plugin has another working directory
	if err != nil {
		return err
	}
	c.Path = path
	if err := runnable(path); err != nil {
		return err
	}
	if n := len(c.socketDir()) + socketName; n > maxSocketPath {
		return fmt.Errorf("socket directory %s: a path in it would have %d bytes, and a socket's may have %d; use a shorter one",
			c.socketDir(), n, maxSocketPath)
	}
	for _, dir := range []string{c.socketDir(), c.stateDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// runnable reports why the binary cannot be run, where that can be seen at once.
func runnable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("there is no such file; install the plugin there, or set its path in the config: %w", os.ErrNotExist)
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("it is a directory, not a plugin")
	}
	return executable(path, info)
}

// command is the process to be, without what go-plugin adds to its environment.
func (c Command) command(cert []byte) *exec.Cmd {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir = c.stateDir()
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "TZ", "GOTRACEBACK", "GODEBUG", "GOMEMLIMIT", "GOMAXPROCS", "GOGC", "GOCOVERDIR", "SystemRoot"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Env = append(cmd.Env, c.Env...)
	cmd.Env = append(cmd.Env, "PLUGIN_CLIENT_CERT="+string(cert))
	cmd.SysProcAttr = separate()
	return cmd
}

func (c Command) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return launchTimeout
}

func (c Command) socketDir() string {
	if c.SocketDir != "" {
		return c.SocketDir
	}
	return os.TempDir()
}

// socketName is the length of what go-plugin appends to the socket directory:
// "/plugin-dirN/pluginN", with numbers of up to ten digits.
const socketName = len("/plugin-dir/plugin") + 20

func (c Command) stateDir() string {
	if c.StateDir != "" {
		return c.StateDir
	}
	return string(filepath.Separator)
}
