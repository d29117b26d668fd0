// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/pointsman/pointsman/sdk/wire"
)

// Launch starts a plugin and connects to it. An error says why it did not come
// up, in its own last words where it left any, and then no process is left.
func Launch(ctx context.Context, c Command) (*Plugin, error) {
	plugin, err := launch(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w", c.Path, err)
	}
	return plugin, nil
}

func launch(ctx context.Context, c Command) (*Plugin, error) {
	binary, err := c.prepare()
	if err != nil {
		return nil, err
	}
	defer binary.Close()
	cert, key, err := newKeys()
	if err != nil {
		return nil, err
	}
	c.Mark.Launch = cmp.Or(c.Mark.Launch, NewLaunch())
	child := newChild(ctx, c.command(binary, cert))
	child.limit = c.timeout()
	handle := Handle{Target: wire.Target{Cert: cert, Key: key}, Launch: c.Mark.Launch}
	if err := handle.start(c, child); err != nil {
		endChild(child)
		handle.removeDir()
		return nil, c.cause(ctx, err, child)
	}
	plugin, err := connect(ctx, handle, child.process)
	if err != nil {
		endChild(child)
		handle.removeDir()
		return nil, child.explain(err)
	}
	if c.OOMScoreAdj != nil {
		if err := oomScore(child.pid, *c.OOMScoreAdj); err != nil {
			plugin.warnings = append(plugin.warnings, fmt.Sprintf("set the out-of-memory score of %s: %v", plugin.Hello(), err))
		}
	}
	return plugin, nil
}

// start lets go-plugin do the handshake, and fills in where the plugin listens.
func (h *Handle) start(c Command, child *child) error {
	config, err := h.TLS() // Peer is not known yet
	if err != nil {
		return err
	}
	sets := make(map[int]plugin.PluginSet) // empty, because we make the connection without go-plugin
	for _, major := range wire.Majors() {
		sets[int(major)] = plugin.PluginSet{}
	}
	// Under any other logger go-plugin parses each line of a plugin's stderr, and a line such
	// as {"@message":5} ends the host.
	silent := hclog.New(&hclog.LoggerOptions{Level: hclog.Off})
	defer child.release()
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: sets,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           silent,
		SkipHostEnv:      true,                                  // the host's may hold credentials
		TLSConfig:        config,                                // never nil: go-plugin would fall over a certificate it did not ask for
		StartTimeout:     Timeout{Limit: 2 * c.timeout()}.max(), // the child's own limit comes first
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
	h.NetNS, h.Exe = traits(child.pid)
	return nil
}

// endChild makes sure that a child which did not come up is gone.
func endChild(c *child) {
	if c.pid == 0 {
		return
	}
	c.kill(os.Kill)
	c.wait(context.Background(), time.Second)
}

// Attach connects to a plugin that runs already: one that a former host launched, by the
// Handle it kept, or one that listens for itself, by a Handle with a Target alone
// ([wire.At]). It checks that it is the very process that is meant, not one that got its
// pid or its socket since; where that process has ended, the error is os.ErrProcessDone.
func Attach(ctx context.Context, h Handle) (*Plugin, error) {
	if h.PID == 0 {
		return attachListener(ctx, h)
	}
	plugin, err := attach(ctx, h, h.PID, h.Start)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", h, err)
	}
	return plugin, nil
}

func attach(ctx context.Context, h Handle, pid int, start uint64) (*Plugin, error) {
	p, err := watch(pid, start)
	if err != nil {
		return nil, err
	}
	h.PID, h.Start = p.pid, p.start
	plugin, err := connect(ctx, h, p)
	if err != nil {
		p.forget()
		return nil, err
	}
	return plugin, nil
}

// attachListener attaches to whichever process is behind the socket. One that cannot be
// seen from here, as in another container, counts as ended when the connection does.
func attachListener(ctx context.Context, h Handle) (*Plugin, error) {
	pid, err := h.Target.PID(ctx)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", h, err)
	}
	if pid != 0 {
		plugin, err := attach(ctx, h, pid, 0)
		if err == nil {
			return plugin, nil
		}
		if !errors.Is(err, os.ErrProcessDone) { // else /proc may be mounted with hidepid
			return nil, fmt.Errorf("attach to %s: %w", h, err)
		}
	}
	return attachUnseen(ctx, h)
}

func attachUnseen(ctx context.Context, h Handle) (*Plugin, error) {
	remote, err := wire.Attach(ctx, h.Target)
	if err != nil {
		return nil, err
	}
	p := newProcess(0)
	p.exited = remote.Exited()
	p.exit = Exit{Code: -1, Stderr: []string{"the connection to it was lost"}}
	h.Target = remote.Target()
	return &Plugin{Remote: remote, process: p, handle: h}, nil
}
