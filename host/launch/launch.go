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

// A Plugin is a process that this host started, and the connection to it.
type Plugin struct {
	*wire.Remote
	child *child
}

// Launch starts a plugin and connects to it. After an error no process is left; the error
// contains the last lines of the process's stderr.
func Launch(ctx context.Context, b *Binary, c Command) (p *Plugin, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("launch %s: %w", b.path, err)
		}
	}()
	if err := c.prepare(); err != nil {
		return nil, err
	}
	p = &Plugin{child: newChild(ctx, b, c)}
	target, dir, err := p.child.shakeHands(c)
	if err == nil {
		p.Remote, err = wire.Dial(ctx, target, p.child)
	}
	if dir != "" { // the socket is no longer needed, whether we are connected or not
		_ = os.RemoveAll(dir) // the next host tries again
	}
	if err != nil || !p.child.release() {
		if p.Remote != nil {
			_ = p.Close() // the process is killed next
		}
		return nil, p.child.explain(errors.Join(err, context.Cause(ctx)))
	}
	if c.OOMScoreAdj != nil {
		if err := setOOMScore(p.child.PID(), *c.OOMScoreAdj); err != nil {
			p.child.print(fmt.Sprintf("the out-of-memory score of this process stays as it is: %v", err))
		}
	}
	return p, nil
}

// shakeHands makes go-plugin start the process, read its handshake and agree on certificates.
// We do not use go-plugin's connection, because its first call has no deadline and could block.
// dir is the directory of the socket.
func (c *child) shakeHands(from Command) (t wire.Target, dir string, err error) {
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
		StartTimeout:     cmp.Or(from.Timeout, launchTimeout),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: from.SocketDir},
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

const (
	stopLimit = 2 * time.Second // after stdin was closed: the plugin waits up to 0.7 s for its current call
	killLimit = time.Second     // for the kernel to end a process after SIGKILL
)

// Stop closes the plugin's stdin, and kills the process two seconds later if it has not ended.
// Rules in the kernel stay. Stop returns after little more than three seconds, with an error if
// the process is in an uninterruptible system call and still has not ended.
func (p *Plugin) Stop() error {
	_ = p.child.lifeline.Close()
	ended := p.child.wait(stopLimit)
	if !ended {
		p.child.kill()
		ended = p.child.wait(killLimit)
	}
	if err := p.Close(); err != nil || ended {
		return err
	}
	return fmt.Errorf("stop %s: the process does not end", p.Hello())
}

// Kill ends a plugin that does not answer, at once.
func (p *Plugin) Kill() error {
	p.child.kill()
	return p.Stop()
}
