// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
)

func pluginCheckVerb() *cobra.Command {
	var options string
	c := &cobra.Command{
		Use:   "check [NAME|PATH]",
		Short: "Check whether this node can run a plugin, by default that of the configured mode; changes nothing",
		Args:  cobra.MaximumNArgs(1),

		ValidArgsFunction: completePlugins,
	}
	c.Flags().StringVar(&options, "options", "", "the plugin's options as `JSON`, instead of those of the config file")
	return printing(c, func(c *cobra.Command, args []string) (admin.Check, error) {
		found, plugin, err := binaryOf(c, args)
		if err != nil {
			return admin.Check{}, err
		}
		if options != "" {
			plugin.Options = []byte(options)
		}
		check, err := binaries.Check(c.Context(), found, plugin)
		if err == nil && !check.Runs {
			err = errRefused
		}
		return check, err
	}, writeCheck)
}

func writeCheck(w io.Writer, c admin.Check) {
	if !c.Runs {
		fmt.Fprintf(w, "this node cannot run %s: %s\n", c.Name, c.Why)
		return
	}
	fmt.Fprintf(w, "this node can run %s %s\n", c.Name, c.Version)
	for _, missing := range c.Lacks {
		fmt.Fprintln(w, "  but here", missing)
	}
	for _, note := range c.Notes {
		fmt.Fprintln(w, "  note:", note)
	}
}

// binaryOf returns the plugin that the argument names, by path or by name, or that of the configured
// mode, with its settings.
func binaryOf(c *cobra.Command, args []string) (launch.Found, config.Plugin, error) {
	if len(args) > 0 {
		if f, ok := binaryAt(args[0]); ok {
			return f, config.Plugin{}, nil
		}
	}
	s, err := settings(c)
	if err != nil {
		return launch.Found{}, config.Plugin{}, err
	}
	name := append(args, s.Mode)[0]
	if name == config.Auto {
		return launch.Found{}, config.Plugin{}, usageError{errors.New("mode auto names no plugin; try: pointsman plugin check NAME")}
	}
	var names []string
	for _, f := range binaries.Discover(s) {
		if f.Name == name {
			return f, s.Plugins[name], nil
		}
		names = append(names, f.Name)
	}
	return launch.Found{}, config.Plugin{}, binaries.UnknownPlugin(name, names)
}

// binaryAt returns the plugin at a path. A path has a separator, and a name has none.
func binaryAt(word string) (launch.Found, bool) {
	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(word), launch.Prefix), ".exe")
	return launch.Found{Name: name, Path: word}, filepath.Base(word) != word
}
