// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/statefile"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A Plugin describes a plugin to start or to connect to.
type Plugin struct {
	Name        string
	Path        string
	SHA256      string   // of the binary, in hexadecimal; empty means unchecked
	StateDir    string   // the plugin's own directory and its working directory; created if missing; empty means the root
	SocketDir   string   // the parent of the directory for its socket; empty means the system's temporary directory
	OOMScoreAdj *int     // nil means that of the host
	Env         []string // in addition to what every plugin gets: PATH, HOME, TMPDIR, LANG, TZ and Go's variables

	// Address is the address of a plugin that something else runs: another container, or
	// systemd. Start connects to it and does not use Path. If empty, Start starts a process.
	Address string

	// Debug is for plugins that a debugger may stop: a hang is reported but the process is not
	// killed, and its calls may take a day.
	Debug bool

	// timeout limits the time until the handshake; zero means launchTimeout.
	timeout time.Duration
}

const (
	connectLimit  = 10 * time.Second // for Hello with a plugin at an address
	launchTimeout = 10 * time.Second // until the handshake: twice what docs/wire.md requires, because a node that boots is busy
)

// Where returns the plugin's address, or the path of its binary.
func (p Plugin) Where() string { return cmp.Or(p.Address, p.Path) }

// Open opens the plugin's binary. It returns nil if the plugin has an Address.
func (p Plugin) Open() (*Binary, error) {
	if p.Address != "" {
		return nil, nil
	}
	binary, err := OpenBinary(p.Path, p.SHA256)
	if err != nil {
		return nil, fmt.Errorf("launch %w", err)
	}
	return binary, nil
}

// Start starts a process of the binary, or connects to the plugin's Address, and configures it.
// After an error, no process that Start started is left. Start calls log for each line of the
// process's stderr, but not after Exited is closed; log must return soon.
func (p Plugin) Start(ctx context.Context, binary *Binary, options json.RawMessage, log func(wire.LogLine)) (process *Process, err error) {
	if p.Address != "" {
		process, err = p.dial(ctx)
	} else {
		process, err = p.launch(ctx, binary, func(line string) { log(wire.ParseLogLine(line, time.Now())) })
	}
	if err != nil {
		return nil, err
	}
	d, err := process.Configure(ctx, sdk.Setup{Options: options, StateDir: p.StateDir})
	if err == nil && d.Name != p.Name {
		err = fmt.Errorf("%s calls itself %q: its name must be %q", p.Where(), d.Name, p.Name)
	}
	if err != nil {
		process.End(err)
		return nil, fmt.Errorf("configure: %w", err)
	}
	process.Description = d
	if p.Debug {
		process.Debugged()
	}
	return process, nil
}

// dial connects to the plugin's address.
func (p Plugin) dial(ctx context.Context) (*Process, error) {
	target, err := wire.At(p.Address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	remote, err := wire.Attach(ctx, target)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("%w; try: start what runs it, such as systemctl enable --now pointsman-dataplane@%s", err, p.Name)
	}
	if err != nil {
		return nil, err
	}
	return &Process{Remote: remote, plugin: p}, nil
}

// launch starts a process of the binary and connects to it. After an error no process is left;
// the error contains the last lines of the process's stderr.
func (p Plugin) launch(ctx context.Context, b *Binary, log func(string)) (process *Process, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("launch %s: %w", b.path, err)
		}
	}()
	sockets, err := p.socketDir()
	if err == nil {
		err = statefile.MakeDir(p.workDir())
	}
	if err != nil {
		return nil, err
	}
	c := newChild(ctx, b, p, log)
	process = &Process{plugin: p, child: c}
	target, dir, err := c.shakeHands(sockets, cmp.Or(p.timeout, launchTimeout))
	if err == nil {
		process.Remote, err = wire.Dial(ctx, target, c)
	}
	if dir != "" { // the socket is no longer needed, whether we are connected or not
		_ = os.RemoveAll(dir) // the next host tries again
	}
	if err != nil || !c.release() {
		if process.Remote != nil {
			_ = process.Close() // the process is killed next
		}
		return nil, c.explain(errors.Join(err, context.Cause(ctx)))
	}
	if p.OOMScoreAdj != nil {
		if err := setOOMScore(c.PID(), *p.OOMScoreAdj); err != nil {
			c.print(fmt.Sprintf("cannot set oom_score_adj of this process: %v", err))
		}
	}
	return process, nil
}

func (p Plugin) workDir() string { return cmp.Or(p.StateDir, string(filepath.Separator)) }

// socketName is the length of what go-plugin appends to the socket directory:
// "/plugin-dirN/pluginN", with numbers of up to ten digits.
const socketName = len("/plugin-dir/plugin") + 20

// socketDir returns the parent of the directory for the socket: SocketDir, or the system's
// temporary directory if SocketDir is not usable, because it is full or read-only.
func (p Plugin) socketDir() (string, error) {
	dir := os.TempDir()
	if p.SocketDir != "" && statefile.MakeDir(p.SocketDir) == nil {
		if probe, err := os.MkdirTemp(p.SocketDir, "plugin-dir"); err == nil {
			_ = os.Remove(probe)
			dir = p.SocketDir
			if err := statefile.Guarded(dir); err != nil {
				return "", fmt.Errorf("create its socket: %w", err)
			}
		}
	}
	if n := len(dir) + socketName; n > wire.MaxSocketPath && runtime.GOOS != "windows" { // on Windows plugins listen on a loopback port
		return "", fmt.Errorf("socket directory %s: a socket's path in it would have %d bytes, and the limit is %d; use a shorter one", dir, n, wire.MaxSocketPath)
	}
	return dir, nil
}

// shakeHands makes go-plugin start the process, read its handshake and agree on certificates.
// We do not use go-plugin's connection, because its first call has no deadline and could block.
// dir is the directory of the socket.
func (c *child) shakeHands(sockets string, timeout time.Duration) (t wire.Target, dir string, err error) {
	sets := make(map[int]plugin.PluginSet)
	for _, major := range wire.Majors() {
		sets[int(major)] = plugin.PluginSet{}
	}
	config := &plugin.ClientConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: sets,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true, // the host's environment may hold credentials
		StartTimeout:     timeout,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: sockets},
		Logger:           hclog.NewNullLogger(),
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, made string) (runner.Runner, error) {
			dir = made
			c.cmd.Env = append(c.cmd.Env, spec.Env...)
			return c, nil
		},
	}
	addr, err := plugin.NewClient(config).Start()
	if err == nil && config.TLSConfig.RootCAs == nil { // go-plugin sets it from the handshake
		err = errors.New("the handshake has no certificate; does the plugin call wire.Serve?")
	}
	if err != nil {
		return t, dir, err
	}
	return wire.Target{Network: addr.Network(), Address: addr.String(), TLS: config.TLSConfig}, dir, nil
}
