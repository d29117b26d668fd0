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
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/dataplanes"
	"github.com/pointsman/pointsman/host/supervise"
)

// aPlugin is what info and check want behind them.
const aPlugin = "the name of a plugin, or the path of its binary"

func pluginCheckVerb() *cobra.Command {
	var options string
	c := &cobra.Command{
		Use:   "check [NAME|PATH]",
		Short: "Ask a plugin, or that of the config file's mode, whether this node can run it; changes nothing",
		Args:  words(0, 1, "one plugin at most: "+aPlugin),

		ValidArgsFunction: eachWord(completePluginsOrFiles),
	}
	out := addFormat(c)
	c.Flags().StringVar(&options, "options", "", "its own options as JSON, instead of those of the config file")
	c.RunE = func(c *cobra.Command, args []string) error {
		found, plugin, err := binaryOf(c, args)
		if err != nil {
			return err
		}
		if options != "" {
			plugin.Options = []byte(options)
		}
		check, err := dataplanes.Check(c.Context(), found, plugin)
		if err != nil {
			return err
		}
		if err := out.print(c.OutOrStdout(), check, func(w io.Writer) { writeCheck(w, check) }); err != nil {
			return err
		}
		if !check.Runs {
			return fmt.Errorf("this node cannot run %s: %s", check.Name, check.Why)
		}
		return nil
	}
	return c
}

// writeCheck prints what the plugin itself would. Why it cannot run is the verb's error.
func writeCheck(w io.Writer, c admin.Check) {
	if !c.Runs {
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

// binaryOf returns the plugin that a word names, by its path or as the settings find it, and what
// they say of it; without a word, that of their mode.
func binaryOf(c *cobra.Command, words []string) (supervise.Found, config.Plugin, error) {
	if len(words) > 0 {
		if f, ok := binaryAt(words[0]); ok {
			return f, config.Plugin{}, nil
		}
	}
	s, err := settings(c)
	if err != nil {
		return supervise.Found{}, config.Plugin{}, err
	}
	word := append(words, s.Mode)[0]
	if word == config.Auto {
		return supervise.Found{}, config.Plugin{}, usageError{errors.New("which plugin? mode auto names none; try: pointsman plugin check NAME")}
	}
	var there []string
	for _, f := range dataplanes.Discover(s) {
		if f.Name == word {
			return f, s.Plugins[word], nil
		}
		there = append(there, f.Name)
	}
	return supervise.Found{}, config.Plugin{}, dataplanes.UnknownPlugin(word, there)
}

// binaryAt returns the plugin at a path, which has a separator as no name has.
func binaryAt(word string) (supervise.Found, bool) {
	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(word), supervise.Prefix), ".exe")
	return supervise.Found{Name: name, Path: word}, filepath.Base(word) != word
}
