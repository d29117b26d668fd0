// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/dataplanes"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// Why lockState does not lock a state directory: a host with it lives, or others may change
// what is in it. Where the system is no unix, neither is found out.
var (
	errInUse     = errors.New("another host uses it")
	errUntrusted = errors.New("the state directory cannot be trusted")
)

// cleanupLimit is how long one plugin may take to clean up.
const cleanupLimit = 5 * time.Minute

func cleanupVerb() *cobra.Command {
	var kubeProxy, dryRun bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove every trace of the dataplanes from this node",
		Long: `Cleanup asks each plugin's binary to remove what it made on this node, and only that. Beside a running host it leaves the
mode in use alone, and while a swap is under way both of its modes. Where none runs, the
next host starts with the mode of the config file and ignores an earlier mode swap.`,
		Args: noWords(),
	}
	c.Flags().BoolVar(&kubeProxy, "kube-proxy", false, "also what kube-proxy left in the modes that the plugins replace")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would go")
	c.RunE = func(c *cobra.Command, _ []string) error {
		s, err := settings(c)
		if err != nil {
			return err
		}
		ctx, stop := untilInterrupt(c.Context())
		defer stop()
		j := cleaner{settings: s, kubeProxy: kubeProxy, dryRun: dryRun, out: c.OutOrStdout(), errs: c.ErrOrStderr()}
		status, err := client(c).Status(ctx)
		if err != nil && !noHost(err) {
			return fmt.Errorf("which modes does the running host use: %w; stop it first", err)
		}
		j.inUse = modesOf(status)
		return j.clean(ctx)
	}
	return c
}

// noHost reports whether err, of asking a host, says that none runs. One that is too
// busy to answer does.
func noHost(err error) bool {
	return errors.Is(err, admin.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded)
}

// modesOf returns those that a host uses: the one that serves, and for the time of a swap the
// one that is to come, or that still has connections.
func modesOf(s admin.Status) []string {
	if s.Swap != nil {
		return []string{s.Mode, s.Swap.From, s.Swap.To}
	}
	return []string{s.Mode}
}

// A cleaner cleans up after all plugins, one by one.
type cleaner struct {
	settings          *config.Host
	inUse             []string // the modes of a running host
	kubeProxy, dryRun bool
	out, errs         io.Writer
}

// clean does all it can, and returns what did not work.
func (j cleaner) clean(ctx context.Context) error {
	found := dataplanes.Discover(j.settings)
	if len(found) == 0 {
		return fmt.Errorf("no plugins in %s; try: --plugin-dir DIR", phrase.List(j.settings.PluginDirs))
	}
	var failed []error
	for _, f := range found {
		if slices.Contains(j.inUse, f.Name) {
			fmt.Fprintf(j.out, "%s: left alone, a running host uses it\n", f.Name)
			continue
		}
		failed = append(failed, j.ask(ctx, f))
	}
	if err := errors.Join(failed...); err != nil || j.dryRun || statefile.Guarded(j.settings.StateDir) != nil {
		return err
	}
	return j.alone(func() error { return plane.Forget(j.settings.StateDir) })
}

// alone does something while no host has the state directory. Where one has it, it is not done.
func (j cleaner) alone(do func() error) error {
	if _, err := os.Stat(j.settings.StateDir); err != nil {
		return nil // no host has used it
	}
	lock, err := lockState(j.settings.StateDir)
	if errors.Is(err, errInUse) {
		return nil
	}
	if errors.Is(err, errUntrusted) {
		fmt.Fprintf(j.errs, "what the host wrote down stays: %v\n", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	return do()
}

// ask runs the plugin's own cleanup.
func (j cleaner) ask(ctx context.Context, f supervise.Found) error {
	if f.Err != nil {
		return fmt.Errorf("%s: %w", f.Name, f.Err)
	}
	args := []string{"cleanup"}
	if j.kubeProxy {
		args = append(args, "--kube-proxy")
	}
	if j.dryRun {
		args = append(args, "--dry-run")
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupLimit)
	defer cancel()
	binary, err := launch.OpenBinary(f.Path, j.settings.Plugins[f.Name].SHA256)
	if err != nil {
		return err
	}
	defer binary.Close()
	cmd := binary.Command(ctx, args...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdout = &prefixed{w: j.out, prefix: f.Name + ": "}
	cmd.Stderr = &prefixed{w: j.errs, prefix: f.Name + ": "}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s cleanup: %w", f.Path, err)
	}
	return nil
}

// A prefixed writer writes a prefix before each line.
type prefixed struct {
	w      io.Writer
	prefix string
	inLine bool
}

func (p *prefixed) Write(data []byte) (int, error) {
	for line := range bytes.Lines(data) {
		if !p.inLine {
			line = append([]byte(p.prefix), line...)
		}
		if _, err := p.w.Write(line); err != nil {
			return 0, err
		}
		p.inLine = line[len(line)-1] != '\n'
	}
	return len(data), nil
}
