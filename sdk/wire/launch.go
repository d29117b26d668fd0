// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
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

// Launch starts a plugin and connects to it. An error says why it did not come
// up, in its own last words where it left any, and then no process is left.
func Launch(ctx context.Context, c Command) (*Remote, error) {
	remote, err := launch(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w", c.Path, err)
	}
	return remote, nil
}

func launch(ctx context.Context, c Command) (*Remote, error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}
	cert, key, err := newKeys()
	if err != nil {
		return nil, err
	}
	child := newChild(ctx, c.command(cert))
	handle := Handle{Cert: cert, Key: key}
	began := time.Now()
	if err := handle.start(c, child); err != nil {
		late := time.Since(began) >= c.timeout()
		end(child)
		handle.sweep()
		return nil, c.cause(ctx, err, child, late)
	}
	remote, err := greeted(ctx, handle, child.process)
	if err != nil {
		end(child)
		handle.sweep()
		return nil, child.explain(err)
	}
	if c.OOMScoreAdj != nil {
		if err := oomScore(child.pid, *c.OOMScoreAdj); err != nil {
			remote.warnings = append(remote.warnings, fmt.Sprintf("set the out-of-memory score of %s: %v", remote.hello, err))
		}
	}
	return remote, nil
}

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

// start lets go-plugin do the handshake, and fills in where the plugin listens.
func (h *Handle) start(c Command, child *child) error {
	config, err := hostTLS(h.Cert, h.Key, nil)
	if err != nil {
		return err
	}
	defer child.release()
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  handshakeConfig(),
		VersionedPlugins: plugins(nil),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           silent(),
		SkipHostEnv:      true,   // the host's may hold credentials
		TLSConfig:        config, // never nil: go-plugin would fall over a certificate it did not ask for
		StartTimeout:     c.timeout(),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: c.SocketDir},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, dir string) (runner.Runner, error) {
			h.Dir = dir
			child.cmd.Env = append(child.cmd.Env, spec.Env...)
			return child, nil
		},
	})
	addr, err := client.Start()
	if err != nil {
		return err
	}
	answer, _ := parseHandshake(child.line)
	if err := answer.certified(); err != nil {
		return err
	}
	h.Network, h.Address = addr.Network(), addr.String()
	h.PID, h.Start, h.Peer = child.pid, child.start, answer.certificate
	return nil
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

func (c Command) stateDir() string {
	if c.StateDir != "" {
		return c.StateDir
	}
	return string(filepath.Separator)
}

// socketName is the length of what go-plugin appends to the socket directory:
// "/plugin-dirN/pluginN", with numbers of up to ten digits.
const socketName = len("/plugin-dir/plugin") + 20

// greeted connects to a plugin and makes its Remote.
func greeted(ctx context.Context, h Handle, p *process) (*Remote, error) {
	conn, err := dial(h, p.pid)
	if err != nil {
		return nil, err
	}
	hello, err := greet(ctx, conn, h.Nonce)
	if err != nil {
		conn.Close()
		return nil, err
	}
	h.Nonce = hello.Nonce
	return newRemote(conn, hello, h, p), nil
}

// end makes sure that a child which did not come up is gone.
func end(c *child) {
	if c.pid == 0 {
		return
	}
	c.kill(os.Kill)
	c.wait(context.Background(), time.Second)
}

// cause is why a launch failed, as far as can be told; err is go-plugin's word,
// and late says that time ran out.
func (c Command) cause(ctx context.Context, err error, child *child, late bool) error {
	switch {
	case child.pid == 0:
		return unstarted(c.Path, err)
	case ctx.Err() != nil:
		return child.explain(context.Cause(ctx))
	case child.silent() && late:
		return child.explain(fmt.Errorf("no handshake within %s: does it call wire.Serve?", c.timeout()))
	case child.silent():
		return child.explain(fmt.Errorf("it %s before the handshake; does it call wire.Serve?", child.exit.how()))
	}
	answer, ok := parseHandshake(child.line)
	switch {
	case !ok:
		return child.explain(fmt.Errorf("it printed %q to stdout before the handshake: until wire.Serve runs, a plugin may only print to stderr", bounded(child.line)))
	case !answer.speaksOurs():
		return child.explain(skew("plugin "+filepath.Base(c.Path), []uint32{answer.major}, ""))
	case answer.certified() != nil:
		return child.explain(answer.certified())
	}
	return child.explain(err)
}

// silent reports whether the child ended without a line on stdout.
func (c *child) silent() bool {
	select {
	case <-c.first:
		return c.line == ""
	default:
		return true
	}
}

// explain adds the child's last words to err.
func (c *child) explain(err error) error {
	words := c.tail.text()
	if len(words) == 0 {
		return err
	}
	for i := range words {
		words[i] = text(words[i])
	}
	return &launchError{err: err, words: words}
}

// A launchError has the plugin's last words below what went wrong.
type launchError struct {
	err   error
	words []string
}

func (e *launchError) Error() string {
	s := e.err.Error() + "; it said:"
	for _, w := range e.words {
		s += "\n  " + w
	}
	return s
}

func (e *launchError) Unwrap() error { return e.err }

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
