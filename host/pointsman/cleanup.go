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
	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/internal/lines"
)

// Errors of lockState on Unix: another host uses the state directory, or other users may write to it.
var (
	errInUse     = errors.New("another host uses it")
	errUntrusted = errors.New("the state directory cannot be trusted")
)

// cleanupLimit limits the cleanup of one plugin.
const cleanupLimit = 5 * time.Minute

func cleanupVerb() *cobra.Command {
	j := &cleaner{}
	c := verb("cleanup", "Remove everything that the dataplanes created on this node", cobra.NoArgs)
	c.Flags().BoolVar(&j.kubeProxy, "kube-proxy", false, "also remove what kube-proxy left in the modes of these plugins")
	c.Flags().BoolVar(&j.dryRun, "dry-run", false, "only print what would be removed")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if j.settings, err = settings(c); err != nil {
			return err
		}
		status, err := client(c).Status(c.Context())
		if err != nil && !isNoHost(err) {
			return fmt.Errorf("which modes does the running host use: %w; stop it first", err)
		}
		j.inUse, j.out, j.errs = modesInUse(status), c.OutOrStdout(), c.ErrOrStderr()
		return j.clean(c.Context())
	}
	return c
}

// isNoHost reports whether an error of the client means that no host runs. A host that is too busy to
// answer runs.
func isNoHost(err error) bool {
	return errors.Is(err, admin.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded)
}

// modesInUse returns the modes that a host uses: the serving mode, and during a swap the next or the
// draining mode.
func modesInUse(s admin.Status) []string {
	if s.Swap != nil {
		return []string{s.Mode, s.Swap.From, s.Swap.To}
	}
	return []string{s.Mode}
}

// A cleaner runs the cleanups of all plugins, one after the other.
type cleaner struct {
	settings          *config.Host
	inUse             []string // modes of a running host
	kubeProxy, dryRun bool
	out, errs         io.Writer
}

// clean runs the cleanup of each plugin, also after one fails, and deletes the record of the last mode.
func (j *cleaner) clean(ctx context.Context) error {
	found := binaries.Discover(j.settings)
	if len(found) == 0 {
		return fmt.Errorf("no plugins in %s; try: --plugin-dir DIR", phrase.List(j.settings.PluginDirs))
	}
	var failed error
	for _, f := range found {
		if slices.Contains(j.inUse, f.Name) {
			fmt.Fprintf(j.out, "%s: left alone, a running host uses it\n", f.Name)
			continue
		}
		failed = errors.Join(failed, j.run(ctx, f))
	}
	if failed != nil || j.dryRun {
		return failed
	}
	return j.forget()
}

// forget deletes the record of the mode, unless no host has used the state directory, a host uses it
// now, or other users may write to it.
func (j *cleaner) forget() error {
	dir := j.settings.StateDir
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	lock, err := lockState(dir)
	switch {
	case errors.Is(err, errInUse), errors.Is(err, errUntrusted):
		return nil
	case err != nil:
		return err
	}
	return errors.Join(plane.Forget(dir), lock.Close())
}

// run runs the cleanup of one plugin, and prefixes its output with the plugin's name.
func (j *cleaner) run(ctx context.Context, f launch.Found) error {
	if f.Err != nil {
		return fmt.Errorf("%s: %w", f.Name, f.Err)
	}
	args := slices.DeleteFunc([]string{"cleanup", "--kube-proxy", "--dry-run"}, func(arg string) bool {
		return arg == "--kube-proxy" && !j.kubeProxy || arg == "--dry-run" && !j.dryRun
	})
	ctx, cancel := context.WithTimeout(ctx, cleanupLimit)
	defer cancel()
	binary, err := launch.OpenBinary(f.Path, j.settings.Plugins[f.Name].SHA256)
	if err != nil {
		return err
	}
	defer binary.Close()
	var stdout, stderr bytes.Buffer
	cmd := binary.Command(ctx, args...)
	cmd.WaitDelay, cmd.Stdout, cmd.Stderr = 5*time.Second, &stdout, &stderr
	err = cmd.Run()
	lines.Each(&stdout, func(line string) { fmt.Fprintf(j.out, "%s: %s\n", f.Name, line) })
	lines.Each(&stderr, func(line string) { fmt.Fprintf(j.errs, "%s: %s\n", f.Name, line) })
	if err != nil {
		return fmt.Errorf("%s cleanup: %w", f.Path, err)
	}
	return nil
}
