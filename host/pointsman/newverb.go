// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/scaffold"
	"github.com/pointsman/pointsman/sdk/wire"
)

// conformanceProgram is the name of the program that tests plugins against the contract.
const conformanceProgram = "pointsman-conformance"

func pluginNewVerb() *cobra.Command {
	var p scaffold.Plugin
	c := verb("new NAME", "Create a folder with a working plugin to start from", cobra.ExactArgs(1))
	c.Flags().StringVar(&p.Language, "lang", scaffold.Go, languages)
	c.Flags().StringVar(&p.Module, "module", "", "the Go module `PATH` (default example.org/pointsman-dataplane-NAME)")
	c.RunE = func(c *cobra.Command, args []string) error {
		p.Name = args[0]
		if err := complete(&p); err != nil {
			return usageError{err}
		}
		dir := launch.Prefix + p.Name
		files, err := scaffold.Files(p)
		if err == nil {
			err = scaffold.Write(dir, files)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), `%s: %s in %s
next:
  cd %s
  make build        # README.md lists what it needs
  make conformance  # test it against the contract
  make run          # a host that serves services/web.yaml with it, until Ctrl-C
  make swap         # in another terminal: swap away from it and back
`, dir, phrase.Count(len(files), "file"), p.Language, dir)
		return nil
	}
	return c
}

// release matches the versions of builds from a tag.
var release = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[a-z]+(\.[0-9]+)?)?$`)

// languages are the values of --lang.
var languages = strings.Join(scaffold.Languages, " or ")

// ourModes are names that a new plugin cannot have.
var ourModes = []string{"auto", "iptables", "ipvs", "nftables", "userspace"}

// complete checks the arguments and sets the other fields.
func complete(p *scaffold.Plugin) error {
	switch {
	case !launch.ValidName(p.Name):
		return fmt.Errorf("%q cannot be a plugin's name: want lower-case letters, digits and - between them, at most 63; try: acme", p.Name)
	case slices.Contains(ourModes, p.Name):
		return fmt.Errorf("%q is a mode of Pointsman's own; try another name, such as my-%s", p.Name, p.Name)
	case !slices.Contains(scaffold.Languages, p.Language):
		return fmt.Errorf("--lang: want %s, not %q; a plugin in another language speaks the protocol itself: see docs/wire.md", languages, p.Language)
	case p.Module != "" && p.Language != scaffold.Go:
		return fmt.Errorf("--module: a plugin in %s has none; leave it out, or use --lang go", p.Language)
	}
	p.Module = cmp.Or(p.Module, "example.org/"+launch.Prefix+p.Name)
	if v := wire.Build(); release.MatchString(v) && v != "v0.0.0" {
		p.Version = v
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The files call a program by its name if PATH has it, else by its path.
	p.Pointsman, p.Conformance = self, filepath.Join(filepath.Dir(self), conformanceProgram)
	for _, program := range []*string{&p.Pointsman, &p.Conformance} {
		if _, err := exec.LookPath(filepath.Base(*program)); err == nil {
			*program = filepath.Base(*program)
		}
	}
	// A host also searches its own folder, and ignores folders that do not exist.
	p.PluginDirs = slices.Compact([]string{filepath.Join(filepath.Dir(self), "..", "libexec", "pointsman"), "/usr/libexec/pointsman"})
	p.Ports, err = scaffold.FreePorts()
	return err
}
