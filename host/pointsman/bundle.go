// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/doctor"
	"github.com/pointsman/pointsman/host/phrase"
)

func bundleVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "Write an archive without secrets, for help with debugging this node",
		Long: `Bundle writes a tar.gz archive that only its owner can read: the answers of the host (status,
Services, events, plugins, mode, metrics, diff), the findings of doctor, the settings, and the logs
of the plugins in use. It omits the values of plugin options. FILE must not exist yet.

Without a running host the archive has only the settings, the version and the findings of doctor.
Its file missing.txt lists what could not be read. Bundle exits 0 if the archive is complete, and 2
if something is missing.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			now := time.Now().UTC()
			name := "pointsman-bundle-" + now.Format("20060102T150405Z") + ".tar.gz"
			if len(args) > 0 {
				name = args[0]
			}
			return writeBundle(c.Context(), c, name, now)
		},
	}
}

// writeBundle writes the archive, or leaves no file behind.
func writeBundle(ctx context.Context, c *cobra.Command, name string, now time.Time) (err error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already and is not overwritten; try: pointsman bundle ANOTHER-NAME", name)
	}
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(file)
	b := &bundle{out: tar.NewWriter(zip), now: now, client: client(c)}
	b.readSettings(ctx, c)
	err = b.addAll(ctx, c)
	if err = errors.Join(err, b.out.Close(), zip.Close(), file.Close(), ctx.Err()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(name))
	}
	for _, line := range b.missing {
		fmt.Fprintln(c.OutOrStdout(), "missing", line)
	}
	fmt.Fprintf(c.OutOrStdout(), "wrote %s: %s\n", name, phrase.Count(b.files, "file"))
	if len(b.missing) > 0 {
		return errDegraded
	}
	return nil
}

// A bundle is an archive in progress.
type bundle struct {
	out     *tar.Writer
	now     time.Time
	client  *admin.Client
	plugins []admin.Plugin

	settings []byte            // without secrets
	invalid  error             // why settings is empty
	secrets  *strings.Replacer // hides the values of options where a message quotes them

	files   int
	missing []string
}

// readSettings reads the settings of the running host, or those of the file if no host answers. The
// file is always read, because messages may quote options that the host refused.
func (b *bundle) readSettings(ctx context.Context, c *cobra.Command) {
	var public config.Host
	var hidden, more []string
	file, err := settings(c)
	if err == nil {
		public, hidden = file.Public()
	}
	if running, failed := b.client.Config(ctx); failed == nil {
		var current config.Host
		err = json.Unmarshal(running.Settings, &current)
		public, more = current.Public()
	}
	if b.invalid = err; err == nil {
		b.settings, b.invalid = json.MarshalIndent(public, "", "  ")
	}
	list, _ := b.client.Plugins(ctx)
	b.plugins = list.Items
	var schemas strings.Builder
	for _, p := range b.plugins {
		schemas.Write(p.Options)
	}
	b.secrets = newHider(append(hidden, more...), schemas.String())
}

// newHider returns a replacer that hides values. It leaves short values, which occur everywhere, and
// values that a plugin's schema lists, which are public.
func newHider(values []string, schemas string) *strings.Replacer {
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) }) // a Replacer uses the first match
	var pairs []string
	for _, v := range values {
		quoted, _ := json.Marshal(v)
		if len(v) >= 6 && !strings.Contains(schemas, string(quoted)) {
			pairs = append(pairs, v, config.Hidden, string(quoted[1:len(quoted)-1]), config.Hidden)
		}
	}
	return strings.NewReplacer(pairs...)
}

// addAll adds all files. It fails only if the archive cannot be written.
func (b *bundle) addAll(ctx context.Context, c *cobra.Command) error {
	versionText, err := json.MarshalIndent(version(), "", "  ")
	err = errors.Join(b.add("version.json", versionText, err), b.add("config.json", b.settings, b.invalid))
	findings, failed := json.MarshalIndent(doctor.NewDiagnosis(examine(ctx, c)), "", "  ")
	err = errors.Join(err, b.add("doctor.json", findings, failed))
	asked := []struct{ file, path string }{
		{"status.json", "status"}, {"services.json", "services"}, {"events.json", "events"}, {"plugins.json", "plugins"},
		{"mode.json", "mode"}, {"diff.json", "diff"}, {"metrics.txt", "metrics"},
	}
	for _, p := range b.plugins {
		if p.InUse {
			asked = append(asked, struct{ file, path string }{"logs/" + filepath.Base(p.Name) + ".ndjson", "plugins/" + p.Name + "/logs"})
		}
	}
	for _, a := range asked {
		text, failed := b.client.Text(ctx, a.path)
		err = errors.Join(err, b.add(a.file, text, failed))
	}
	if len(b.missing) > 0 {
		err = errors.Join(err, b.add("missing.txt", []byte(strings.Join(b.missing, "\n")+"\n"), nil))
	}
	return err
}

// add adds one file, or records why it is missing.
func (b *bundle) add(name string, text []byte, missing error) error {
	if missing != nil {
		b.missing = append(b.missing, b.secrets.Replace(name+": "+oneLineOf(missing)))
		return nil
	}
	hidden := b.secrets.Replace(string(text))
	b.files++
	err := b.out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(hidden)), ModTime: b.now, Typeflag: tar.TypeReg})
	if err != nil {
		return err
	}
	_, err = b.out.Write([]byte(hidden))
	return err
}
