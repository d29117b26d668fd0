// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pointsman/pointsman/sdk/statefile"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A Command says how to start a plugin's process.
type Command struct {
	Path string   // the binary; never looked for in PATH
	Args []string // after the name; go-plugin needs none
	Env  []string // beyond what every plugin gets: PATH, HOME, TMPDIR, LANG, TZ and Go's own

	// SHA256 is what the binary's content must have, in hexadecimal. Empty: anything.
	SHA256 string

	// SocketDir is where a directory for the socket is made. It is made too if it
	// is missing. Empty: the system's for temporary files.
	SocketDir string

	// StateDir is the plugin's own directory, and its working directory. It is made
	// if it is missing. Empty: the root.
	StateDir string

	// OOMScoreAdj is by how much the kernel prefers the process, or spares it, when memory
	// runs out. Nil: as the host's.
	OOMScoreAdj *int

	// Mark goes into its environment.
	Mark Mark

	// Timeout is how long the process may take to answer, as the Limit of a Timeout. Zero:
	// five seconds.
	Timeout time.Duration
}

const launchTimeout = 5 * time.Second

// prepare opens the binary and makes the directories, so that what fails before there is a
// process has an error of its own.
func (c *Command) prepare() (*Binary, error) {
	if n := len(c.socketDir()) + socketName; n > wire.MaxSocketPath {
		return nil, fmt.Errorf("socket directory %s: a path in it would have %d bytes, and a socket's may have %d; use a shorter one",
			c.socketDir(), n, wire.MaxSocketPath)
	}
	binary, err := OpenBinary(c.Path, c.SHA256)
	if err != nil {
		return nil, err
	}
	c.Path = binary.path
	for _, dir := range []string{c.socketDir(), c.stateDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			binary.Close()
			return nil, err
		}
	}
	if c.SocketDir != "" {
		if err := statefile.Guarded(c.SocketDir); err != nil {
			binary.Close()
			return nil, fmt.Errorf("its socket cannot be made: %w", err)
		}
	}
	return binary, nil
}

// command returns the process to be, without what go-plugin adds to its environment.
func (c Command) command(b *Binary, cert []byte) *exec.Cmd {
	cmd := b.Command(context.Background(), c.Args...) // its end is seen to by child
	cmd.Dir = c.stateDir()
	cmd.Env = append([]string{c.Mark.environ()}, cmd.Env...)
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
