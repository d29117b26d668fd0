// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/doctor"
	"github.com/pointsman/pointsman/host/phrase"
)

func bundleVerb() *cobra.Command {
	c := verb("bundle [FILE]", "Write an archive without secrets, for help with debugging this node", cobra.MaximumNArgs(1))
	c.RunE = func(c *cobra.Command, args []string) error {
		now := time.Now().UTC()
		name := append(args, "pointsman-bundle-"+now.Format("20060102T150405Z")+".tar.gz")[0]
		b := newBundle(c)
		err := c.Context().Err() // interrupted
		if err == nil {
			err = b.write(name, now)
		}
		if err != nil {
			return err
		}
		for _, line := range b.missing {
			fmt.Fprintln(c.OutOrStdout(), "missing", line)
		}
		fmt.Fprintf(c.OutOrStdout(), "wrote %s: %s\n", name, phrase.Count(len(b.files), "file"))
		if len(b.missing) > 0 {
			return errDegraded
		}
		return nil
	}
	return c
}

// A bundle is the content of an archive.
type bundle struct {
	secrets *strings.Replacer // hides the values of options where a message quotes them
	files   []struct{ name, text string }
	missing []string
}

// newBundle collects the files. The settings are those of the running host, or of the file if no host
// answers. It always reads the file, because messages may quote options that the host refused.
func newBundle(c *cobra.Command) *bundle {
	ctx, host := c.Context(), client(c)
	var public config.Host
	var hidden, more []string
	if file, err := settings(c); err == nil {
		_, hidden = file.Public()
	}
	now, invalid := current(c)
	if invalid == nil {
		public, more = now.Public()
	}
	plugins, _ := host.Plugins(ctx) // plugins.json has the error
	var schemas strings.Builder
	for _, p := range plugins.Items {
		schemas.Write(p.Options)
	}
	b := &bundle{secrets: newHider(append(hidden, more...), schemas.String())}
	b.addJSON("version.json", version(), nil)
	b.addJSON("config.json", public, invalid)
	b.addJSON("doctor.json", doctor.NewDiagnosis(examine(ctx, c)), nil)
	paths := map[string]string{
		"status.json": "status", "services.json": "services", "events.json": "events", "plugins.json": "plugins",
		"mode.json": "mode", "diff.json": "diff", "metrics.txt": "metrics",
	}
	for _, p := range plugins.Items {
		if p.InUse {
			paths["logs/"+filepath.Base(p.Name)+".ndjson"] = "plugins/" + p.Name + "/logs"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		text, err := host.Text(ctx, paths[name])
		b.add(name, text, err)
	}
	if len(b.missing) > 0 {
		b.add("missing.txt", []byte(strings.Join(b.missing, "\n")+"\n"), nil)
	}
	return b
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

// add adds a file, or records why it is missing.
func (b *bundle) add(name string, text []byte, err error) {
	if err != nil {
		b.missing = append(b.missing, b.secrets.Replace(name+": "+oneLineOf(err)))
		return
	}
	b.files = append(b.files, struct{ name, text string }{name, b.secrets.Replace(string(text))})
}

func (b *bundle) addJSON(name string, v any, err error) {
	text, failed := json.MarshalIndent(v, "", "  ")
	b.add(name, text, errors.Join(err, failed))
}

// write writes the archive, or leaves no file.
func (b *bundle) write(name string, now time.Time) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already and is not overwritten; try: pointsman bundle ANOTHER-NAME", name)
	}
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(file)
	out := tar.NewWriter(zip)
	for _, f := range b.files { // Close returns the error of a failed write
		_ = out.WriteHeader(&tar.Header{Name: f.name, Mode: 0o600, Size: int64(len(f.text)), ModTime: now, Typeflag: tar.TypeReg})
		_, _ = io.WriteString(out, f.text)
	}
	if err := errors.Join(out.Close(), zip.Close(), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(name))
	}
	return nil
}
