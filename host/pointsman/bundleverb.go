// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/bundle"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
)

func bundleVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "Write all that a colleague needs to find out what is wrong, without secrets",
		Long: `Bundle writes an archive (tar.gz, under 10 MiB, readable by its owner alone) of what the host, its
plugins and this node's kernel say of themselves: status, Services, events, logs, settings, doctor,
diff. It has no environment, no kubeconfig and no option that the plugin does not describe, and what
is known to be secret on this node is taken out of all text. FILE must not exist yet.

Without a running host it has what can be found out without. MANIFEST.json in it says what is missing
and why. It exits 0 when all is in it, 2 when something is missing.`,
		Args: words(0, 1, "the name of a file"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := untilInterrupt(c.Context())
			defer stop()
			if err := ownSocket(c); err != nil {
				return err
			}
			now := time.Now().UTC()
			name := "pointsman-bundle-" + now.Format("20060102T150405Z") + ".tar.gz"
			if len(args) > 0 {
				name = args[0]
			}
			return writeBundle(ctx, c, name, now)
		},
	}
}

// ownSocket refuses a user who may not open the host's own socket: what the group may ask is less than what
// is in an archive.
func ownSocket(c *cobra.Command) error {
	path, _ := adminSocket(c)
	ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second)
	defer cancel()
	conn, err := admin.Dial(ctx, path)
	if err == nil {
		return conn.Close()
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s may only be opened by its owner, and a bundle is for the owner alone; try: sudo pointsman bundle", path)
	}
	return nil // no host answers: what there is without is in the archive
}

// writeBundle writes the archive, or leaves no file.
func writeBundle(ctx context.Context, c *cobra.Command, name string, now time.Time) (err error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already, and is left as it is; try: pointsman bundle ANOTHER-NAME", name)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil && !errors.Is(err, errDegraded) {
			_ = os.Remove(name) // err says more
		}
	}()
	g := gather(ctx, c)
	archive := bundle.NewArchive(file, bundle.NewScrubber(g.secrets...), now)
	if err := g.members(archive); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	manifest, err := archive.Close(admin.APIVersion)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return writeManifest(c.OutOrStdout(), name, manifest)
}

func writeManifest(w io.Writer, name string, m bundle.Manifest) error {
	var missing []string
	for _, member := range m.Members {
		if member.Error != "" {
			missing = append(missing, fmt.Sprintf("missing %s: %s", member.Name, oneLineOf(errors.New(member.Error))))
		}
	}
	for _, line := range missing {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintf(w, "wrote %s: %s, %s taken out\n", name, phrase.Count(len(m.Members)-len(missing)+1, "file"), phrase.Count(m.Scrubbed, "secret"))
	if len(missing) > 0 {
		return errDegraded
	}
	return nil
}

// askFor is how long one question of a bundle may take, and logsFor the log of one plugin.
const (
	askFor  = 40 * time.Second
	logsFor = 10 * time.Second
)

// A gathering is what goes into an archive.
type gathering struct {
	ctx     context.Context
	command *cobra.Command
	client  *admin.Client

	plugins  admin.PluginList
	settings any // those that may be told
	unset    error
	secrets  []string
}

// gather finds out what is secret on this node, which is taken out of everything.
func gather(ctx context.Context, c *cobra.Command) *gathering {
	g := &gathering{ctx: ctx, command: c, client: client(c)}
	g.plugins, _ = g.client.Plugins(ctx)
	g.secrets = environmentSecrets("/proc/self/environ")
	if s, err := g.client.Status(ctx); err == nil {
		g.secrets = append(g.secrets, environmentSecrets(fmt.Sprintf("/proc/%d/environ", s.Host.PID))...)
	}
	filed, err := settings(c)
	if err == nil {
		text, _ := filed.JSON(false)
		g.take(text)
	} else {
		g.secrets = append(g.secrets, unreadSecrets(configPath(c))...)
	}
	if running, failed := g.client.Config(ctx); failed == nil {
		g.take(running.Settings)
		err = nil
	}
	g.unset = err
	return g
}

// take keeps what may be told of settings, and what in them is secret.
func (g *gathering) take(text []byte) {
	schemas := make(map[string][]byte)
	for _, p := range g.plugins.Items {
		schemas[p.Name] = p.Options
	}
	allowed, secrets, err := bundle.Settings(text, schemas)
	if err != nil {
		g.unset = err
		return
	}
	g.settings, g.secrets = allowed, append(g.secrets, secrets...)
	g.secrets = append(g.secrets, kubeconfigSecrets(kubeconfigIn(text))...)
	g.secrets = append(g.secrets, webSecret(text)...)
}

// kubeconfigIn is the kubeconfig that settings name, and whether they have Services come from a cluster.
func kubeconfigIn(text []byte) (path string, cluster bool) {
	var s struct {
		Source struct {
			Kubernetes *struct{ Kubeconfig string }
		}
	}
	if json.Unmarshal(text, &s) != nil || s.Source.Kubernetes == nil {
		return "", false
	}
	return s.Source.Kubernetes.Kubeconfig, true
}

// members adds all members. An error is one of writing.
func (g *gathering) members(a *bundle.Archive) error {
	unset := g.unset
	if g.settings != nil {
		unset = nil
	}
	for _, m := range []struct {
		name string
		ask  func(context.Context) (any, error)
	}{
		{"version.json", func(context.Context) (any, error) { return version(), nil }},
		{"status.json", func(ctx context.Context) (any, error) { return g.client.Status(ctx) }},
		{"config.json", func(context.Context) (any, error) { return g.settings, unset }},
		{"mode.json", func(ctx context.Context) (any, error) { return g.client.Mode(ctx) }},
		{"plugins.json", func(ctx context.Context) (any, error) { return g.client.Plugins(ctx) }},
		{"events.json", func(ctx context.Context) (any, error) { return g.client.Events(ctx) }},
		{"doctor.json", func(ctx context.Context) (any, error) { return diagnosis(examine(ctx, g.command)), nil }},
		{"kernel.json", func(context.Context) (any, error) { return kernelFacts("/proc"), nil }},
		{"diff.json", func(ctx context.Context) (any, error) { return g.client.Diff(ctx, "") }},
	} {
		if err := g.within(askFor, func(ctx context.Context) error { return a.AddJSON(ctx, m.name, m.ask) }); err != nil {
			return err
		}
	}
	wrong, err := g.services(a)
	return errors.Join(err, g.details(a, wrong), g.logs(a))
}

// within adds a member in a time, and says whether the command was stopped.
func (g *gathering) within(time time.Duration, add func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(g.ctx, time)
	defer cancel()
	return errors.Join(add(ctx), g.ctx.Err())
}

// mostDetails is how many Services with a problem are told in full.
const mostDetails = 50

// services adds all Services, one after the other as they come, and returns the first that have something
// wrong: none, if the host takes too long.
func (g *gathering) services(a *bundle.Archive) ([]serviceName, error) {
	found := make(chan []serviceName, 1)
	err := g.within(askFor, func(ctx context.Context) error {
		return a.AddFrom(ctx, "services.json", func(ctx context.Context, w io.Writer) error {
			var wrong []serviceName
			err := g.client.CopyServices(ctx, w, func(s admin.Service) {
				if len(wrong) < mostDetails && troubled(s) {
					wrong = append(wrong, serviceName{s.Namespace, s.Name})
				}
			})
			found <- wrong
			return err
		})
	})
	select {
	case wrong := <-found:
		return wrong, err
	default: // the host still answers, and nothing waits for it
		return nil, err
	}
}

type serviceName struct{ namespace, name string }

func (g *gathering) details(a *bundle.Archive, services []serviceName) error {
	for _, s := range services {
		name := "services/" + filepath.Base(s.namespace) + "." + filepath.Base(s.name) + ".json"
		err := g.within(askFor, func(ctx context.Context) error {
			return a.AddJSON(ctx, name, func(ctx context.Context) (any, error) { return g.client.Service(ctx, s.namespace, s.name) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// troubled reports whether a Service has something wrong.
func troubled(s admin.Service) bool {
	return len(s.Problems) > 0 || slices.ContainsFunc(s.Ports, func(p admin.Port) bool { return p.State != health.Served })
}

// mostLog is how many bytes of the end of a plugin's log are told.
const mostLog = 1 << 20

func (g *gathering) logs(a *bundle.Archive) error {
	for _, p := range g.plugins.Items {
		if !p.InUse {
			continue
		}
		ctx, cancel := context.WithTimeout(g.ctx, logsFor)
		var lines []string
		size := 0
		err := g.client.Logs(ctx, p.Name, false, func(l admin.LogLine) {
			text, _ := json.Marshal(l)
			lines = append(lines, string(text))
			for size += len(text) + 1; size > mostLog; lines = lines[1:] {
				size -= len(lines[0]) + 1
			}
		})
		cancel()
		text := []byte(strings.Join(lines, "\n") + "\n")
		if err := errors.Join(a.Add("logs/"+filepath.Base(p.Name)+".ndjson", text, err), g.ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// diagnosis is what doctor answers.
func diagnosis(found []admin.Finding) admin.Diagnosis {
	return admin.Diagnosis{Meta: admin.Meta{APIVersion: admin.APIVersion, Kind: "Diagnosis"}, Checks: found, Result: cmp.Or(admin.Worst(found), admin.OK)}
}
