// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
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
	dir   string // of its socket; removed once the connection is made
	watch sync.WaitGroup
}

// Launch starts a plugin and connects to it. With an error no process is left; the error has what the process
// printed to stderr last.
func Launch(ctx context.Context, c Command) (*Plugin, error) {
	p, err := launch(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w", c.Path, err)
	}
	return p, nil
}

func launch(ctx context.Context, c Command) (*Plugin, error) {
	binary, err := c.prepare()
	if err != nil {
		return nil, err
	}
	defer c.close(binary)
	p := &Plugin{child: newChild(ctx, c.command(binary), c.Log)}
	target, err := p.shakeHands(c)
	if err == nil {
		p.Remote, err = wire.Dial(ctx, target, p.child)
	}
	if p.dir != "" { // the connection is made, or never will be
		_ = os.RemoveAll(p.dir) // SweepSockets tries again
	}
	if err != nil || !p.child.release() {
		err = errors.Join(err, context.Cause(ctx))
		if p.Remote != nil {
			_ = p.Close() // the process is killed next
		}
		p.child.kill()
		p.child.wait(killLimit)
		return nil, p.child.explain(c.Path, err)
	}
	if c.OOMScoreAdj != nil {
		if err := setOOMScore(p.child.PID(), *c.OOMScoreAdj); err != nil {
			p.child.print(fmt.Sprintf("the out-of-memory score of this process stays as it is: %v", err))
		}
	}
	p.watch.Go(func() { // ends with the connection or the process
		select {
		case <-p.Lost():
			if !p.child.wait(killLimit) { // its end closes the connection a moment before
				p.child.kill()
			}
		case <-p.child.exited:
		}
	})
	return p, nil
}

// shakeHands has go-plugin start the process, read its handshake and agree on certificates. The connection is
// ours: go-plugin's would stay open without a deadline on its first call.
func (p *Plugin) shakeHands(c Command) (wire.Target, error) {
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
		StartTimeout:     c.timeout(),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: c.SocketDir},
		Logger:           hclog.NewNullLogger(),
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, dir string) (runner.Runner, error) {
			p.dir = dir
			p.child.cmd.Env = append(p.child.cmd.Env, spec.Env...)
			return p.child, nil
		},
	}
	addr, err := plugin.NewClient(config).Start()
	if err != nil {
		return wire.Target{}, err
	}
	if config.TLSConfig.RootCAs == nil { // go-plugin sets it from the handshake
		return wire.Target{}, errors.New("the handshake has no certificate; does the plugin call wire.Serve?")
	}
	return wire.Target{Network: addr.Network(), Address: addr.String(), TLS: config.TLSConfig}, nil
}

// Exit returns how the process ended; it is known once Exited is closed.
func (p *Plugin) Exit() Exit {
	if p.child.ended() {
		return p.child.exit
	}
	return Exit{Code: -1}
}

const (
	stopLimit = 2 * time.Second // for a plugin whose stdin was closed: it waits up to 0.7 s for the present call
	killLimit = time.Second     // for the kernel to end a process after SIGKILL
)

// ErrStillThere is what Stop returns for a process that SIGKILL did not end in time: it is in a system call that
// cannot be interrupted.
var ErrStillThere = errors.New("the process does not end")

// Stop ends the plugin: it closes the plugin's stdin, and kills the process two seconds later. What the plugin
// keeps in the kernel stays. Stop returns in little more than three seconds.
func (p *Plugin) Stop() error {
	p.child.hangUp()
	if !p.child.wait(stopLimit) {
		p.child.kill()
	}
	ended := p.child.wait(killLimit)
	err := p.Close()
	if !ended {
		return fmt.Errorf("stop %s: %w", p.Hello(), ErrStillThere)
	}
	p.watch.Wait()
	return err
}

// Kill ends a plugin that does not answer, at once.
func (p *Plugin) Kill() error {
	p.child.kill()
	return p.Stop()
}

// explain adds to the error of a launch how the process ended and what it printed last.
func (c *child) explain(path string, err error) error {
	if c.cmd.Process == nil {
		return unstarted(path, err)
	}
	if c.ended() {
		err = fmt.Errorf("it %s: %w", c.exit.how(), err)
	}
	words := c.tail.text()
	if len(words) == 0 {
		return err
	}
	for i := range words {
		words[i] = wire.Printable(words[i])
	}
	return fmt.Errorf("%w; it said:\n  %s", err, strings.Join(words, "\n  "))
}
