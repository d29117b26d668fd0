// SPDX-License-Identifier: Apache-2.0

/*
Package demo shows Pointsman at work on one machine: no cluster, no root, under a
minute. It drives the real binaries as a user would, and sends real requests while
it takes an endpoint away and kills the plugin.

	        this process                      pointsman run      pointsman-dataplane-NAME
	┌───────────────────────────┐
	│ load ── requests ─────────┼──────────────────────────────▶ the Services' addresses
	│  └▶ counts                │  manifests ──▶ host ═════════▶  │
	│ backends ◀────────────────┼─────────────────────────────────┘
	│ steps: edit, kill, ask    │
	└───────────────────────────┘

As root it all happens in a network namespace of its own. There rules may be written,
so there is a second act: the mode changes, there and back, under the same load. The mode
that needs IPVS in the kernel is shown in user-mode Linux where this one has none.

The load runs from the first step to the last. A request that gets no answer is a
failure, and the demo says so and fails; only those that the killing of the plugin
explains are counted apart.
*/
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pointsman/pointsman/configs"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// Settings are what a demo needs to know.
type Settings struct {
	Binary    string   // pointsman itself
	Config    string   // a host's file; empty: configs/demo.yaml as it was built in
	PluginDir []string // where plugins are; empty: where an installation or make build puts them, or where Config says
	Out       io.Writer
}

// Run shows the demo on s.Out, and ends everything it has started. The error says
// what went otherwise than it should.
func Run(ctx context.Context, s Settings) error {
	if err := again(ctx, s.Out); !errors.Is(err, errNoNamespace) {
		return err
	}
	d, err := begin(s)
	if err != nil {
		return fmt.Errorf("begin the demo: %w", err)
	}
	err = d.show(ctx)
	left := d.end()
	switch {
	case ctx.Err() != nil && left != nil:
		return fmt.Errorf("the demo was interrupted: %w", left)
	case ctx.Err() != nil:
		return errors.New("the demo was interrupted; what it had started is stopped")
	}
	err = errors.Join(err, left)
	d.last(err)
	return err
}

// A demo is one run: what it has made and started.
type demo struct {
	settings Settings
	screen   *screen
	network  network
	folder   string // for all that it writes; gone with the demo
	host     *host
	open     []io.Closer // its servers, and what reserves the network
	load     *load
	began    time.Time
}

// begin makes everything but the host.
func begin(s Settings) (_ *demo, err error) {
	d := &demo{settings: s, screen: newScreen(s.Out), began: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.end())
		}
	}()
	if inside() {
		if err := raise(); err != nil {
			return nil, err
		}
	}
	if d.network, err = claim(); err != nil {
		return nil, err
	}
	d.open = append(d.open, d.network.guard)
	if d.folder, err = os.MkdirTemp("", "pointsman-demo-"); err != nil {
		return nil, err
	}
	if err := writeManifests(d.manifests(), d.network); err != nil {
		return nil, err
	}
	if err := d.settings.complete(d.folder); err != nil {
		return nil, err
	}
	servers, err := serve(d.network)
	d.open = append(d.open, servers...)
	if err != nil {
		return nil, err
	}
	d.host = newHost(d.settings, d.folder, d.manifests())
	d.load = newLoad(d.network)
	return d, nil
}

func (d *demo) manifests() string { return filepath.Join(d.folder, "services") }

// complete fills in what the user left open. Without a file of the user's own it writes
// the one that was built in, and finds the plugins by the binary's place.
func (s *Settings) complete(folder string) error {
	if s.Config != "" {
		return nil
	}
	text, err := configs.Demo.ReadFile("demo.yaml")
	if err != nil {
		return err
	}
	s.Config = filepath.Join(folder, "demo.yaml")
	if err := statefile.Write(s.Config, text); err != nil {
		return fmt.Errorf("write the host's file: %w", err)
	}
	if len(s.PluginDir) == 0 {
		s.PluginDir = PluginDirs(s.Binary)
	}
	return nil
}

// PluginDirs returns the folders that may have a binary's plugins and exist: its own, as make
// build makes it, and those of an installation.
func PluginDirs(binary string) []string {
	beside := filepath.Dir(binary)
	var dirs []string
	for _, dir := range []string{beside, filepath.Join(beside, "..", "libexec", "pointsman"), "/usr/libexec/pointsman"} {
		if found, _ := filepath.Glob(filepath.Join(dir, "pointsman-dataplane-*")); len(found) > 0 && !slices.Contains(dirs, dir) { // the pattern is none that fails
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// show takes the steps, with the load running beside them.
func (d *demo) show(ctx context.Context) error {
	if err := d.start(ctx); err != nil {
		return d.host.explain(err)
	}
	stop := d.load.start()
	defer stop()
	steps := []func(context.Context) error{d.spread, d.edit, d.kill, d.status, d.swap}
	if isGuest() {
		steps = []func(context.Context) error{func(ctx context.Context) error { return d.swapAndKill(ctx, "ipvs") }}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return d.host.explain(err)
		}
	}
	stop()
	return errors.Join(d.noneFailed(), d.elsewhere(ctx))
}

// end stops what was started and removes what was written.
func (d *demo) end() error {
	var errs []error
	if d.host != nil {
		errs = append(errs, d.host.stop())
	}
	for _, c := range d.open {
		_ = c.Close() // it has nothing to lose
	}
	if d.folder != "" {
		errs = append(errs, os.RemoveAll(d.folder))
	}
	return errors.Join(errs...)
}
