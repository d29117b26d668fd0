// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/binaries"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
)

func pluginVerb() *cobra.Command {
	return group("plugin", "List, check and restart dataplane plugins, or create one",
		pluginListVerb(), pluginInfoVerb(), pluginCheckVerb(), pluginLogsVerb(), pluginRestartVerb(), pluginNewVerb())
}

func pluginListVerb() *cobra.Command {
	c := verb("list", "List the plugins on this machine, and which one the running host uses", cobra.NoArgs)
	return printing(c, func(c *cobra.Command, _ []string) (admin.PluginList, error) {
		list, err := client(c).Plugins(c.Context())
		if !errors.Is(err, admin.ErrUnreachable) {
			return list, err
		}
		s, err := settings(c)
		if err != nil {
			return list, err
		}
		list = admin.PluginList{Meta: admin.Meta{APIVersion: admin.APIVersion, Kind: "PluginList"}, Items: []admin.Plugin{}}
		for _, f := range binaries.Discover(s) {
			list.Items = append(list.Items, binaries.Describe(c.Context(), f, s.Plugins[f.Name].SHA256))
		}
		return list, nil
	}, func(w io.Writer, list admin.PluginList) {
		fmt.Fprintln(w, "NAME\tSTATE\tVERSION\tPID\tRESTARTS\tPATH")
		for _, p := range list.Items {
			pid := "-"
			if p.PID != 0 {
				pid = fmt.Sprint(p.PID)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", p.Name, p.State, cmp.Or(p.Version, "-"), pid, p.Restarts, p.Path)
		}
	})
}

func pluginInfoVerb() *cobra.Command {
	c := verb("info NAME|PATH", "Show one plugin: its process, features, limits and options", cobra.ExactArgs(1))
	return printing(completing(c, pluginNames), func(c *cobra.Command, args []string) (admin.Plugin, error) {
		list, _ := client(c).Plugins(c.Context()) // without a host, the binary describes itself
		for _, p := range list.Items {
			if p.Name == args[0] && (p.Version != "" || p.InUse) {
				return p, nil
			}
		}
		f, s, err := pluginOf(c, args)
		if err != nil {
			return admin.Plugin{}, err
		}
		p := binaries.Describe(c.Context(), f, s.SHA256)
		if p.Why != "" {
			err = errors.New(p.Why)
		}
		return p, err
	}, writePlugin)
}

func pluginCheckVerb() *cobra.Command {
	var options string
	c := verb("check [NAME|PATH]", "Check whether this node can run a plugin, by default that of the configured mode; changes nothing", cobra.MaximumNArgs(1))
	c.Flags().StringVar(&options, "options", "", "the plugin's options as `JSON`, instead of those of the config file")
	return printing(completing(c, pluginNames), func(c *cobra.Command, args []string) (admin.Check, error) {
		f, s, err := pluginOf(c, args)
		if err != nil {
			return admin.Check{}, err
		}
		if options != "" {
			s.Options = []byte(options)
		}
		check, err := binaries.Check(c.Context(), f, s)
		if err == nil && !check.Runs {
			err = errRefused
		}
		return check, err
	}, func(w io.Writer, c admin.Check) {
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
	})
}

// pluginOf returns the plugin that the argument names, by path or by name, or that of the configured
// mode, with its settings. A path has a separator, and a name has none.
func pluginOf(c *cobra.Command, args []string) (launch.Found, config.Plugin, error) {
	if len(args) > 0 && filepath.Base(args[0]) != args[0] {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(args[0]), launch.Prefix), ".exe")
		return launch.Found{Name: name, Path: args[0]}, config.Plugin{}, nil
	}
	s, err := settings(c)
	if err != nil {
		return launch.Found{}, config.Plugin{}, err
	}
	name := append(args, s.Mode)[0]
	if name == config.Auto {
		return launch.Found{}, config.Plugin{}, usageError{errors.New("mode auto names no plugin; try: pointsman plugin check NAME")}
	}
	f, err := installed(s, name)
	return f, s.Plugins[name], err
}

// installed returns the plugin with a name in pluginDirs.
func installed(s *config.Host, name string) (launch.Found, error) {
	var names []string
	for _, f := range binaries.Discover(s) {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return launch.Found{}, binaries.UnknownPlugin(name, names)
}

// pluginNames returns the names of the host's plugins, or without a host of those on this machine.
func pluginNames(ctx context.Context, c *cobra.Command) (names []string) {
	list, err := client(c).Plugins(ctx)
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	if s, failed := settings(c); err != nil && failed == nil {
		for _, f := range binaries.Discover(s) {
			names = append(names, f.Name)
		}
	}
	return names
}

func writePlugin(w io.Writer, p admin.Plugin) {
	writeField(w, "name", p.Name)
	writeField(w, "version", p.Version)
	writeField(w, "path", p.Path)
	writeField(w, "state", p.State)
	writeField(w, "why", p.Why)
	writeField(w, "tried again", until(p.Next))
	writeField(w, "role", p.Role)
	writeField(w, "call", p.Call)
	writeField(w, "writer's lock", p.Lock)
	writeField(w, "held by", p.Holder)
	writeField(w, "waits for", p.Waiting)
	if p.PID != 0 {
		writeField(w, "pid", fmt.Sprint(p.PID))
		writeField(w, "up", ago(p.Up))
	}
	writeField(w, "restarts", fmt.Sprint(p.Restarts))
	if !p.EndedAt.IsZero() {
		writeField(w, "last end", ago(p.EndedAt)+" ago: "+p.LastEnd)
	}
	if p.Memory > 0 {
		writeField(w, "memory", fmt.Sprintf("%.1f MiB", float64(p.Memory)/(1<<20)))
	}
	writeField(w, "serves", phrase.List(p.Features))
	writeField(w, "limits", phrase.List(p.Limits))
	writeItems(w, "options", "", optionLines(p.Options))
}

// optionLines describes the options of a plugin by its JSON schema, one per line. Options within an
// option are in the JSON of the verb, and in the plugin's documentation.
func optionLines(text json.RawMessage) (lines []string) {
	var schema struct {
		Properties map[string]struct {
			Type        any // a string or a list of strings
			Enum        []any
			Default     json.RawMessage
			Description string
			Fixed       bool `json:"x-pointsman-fixed"`
		}
	}
	_ = json.Unmarshal(text, &schema) // a plugin without options has no schema
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		p := schema.Properties[name]
		line := fmt.Sprintf("%s: %v", name, cmp.Or[any](p.Type, "any value"))
		if len(p.Enum) > 0 {
			line = fmt.Sprintf("%s: one of %v", name, p.Enum)
		}
		if len(p.Default) > 0 {
			line += ", default " + string(p.Default)
		}
		if p.Fixed {
			line += ", fixed while it serves"
		}
		if p.Description != "" {
			line += " - " + p.Description
		}
		lines = append(lines, line)
	}
	return lines
}

func pluginLogsVerb() *cobra.Command {
	var follow bool
	c := completing(verb("logs NAME", "Print the last lines of a plugin's log", cobra.ExactArgs(1)), pluginNames)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new lines until Ctrl-C")
	c.RunE = func(c *cobra.Command, args []string) error {
		return client(c).Logs(c.Context(), args[0], follow, func(l admin.LogLine) { fmt.Fprintln(c.OutOrStdout(), l.Message) })
	}
	return c
}

func pluginRestartVerb() *cobra.Command {
	c := completing(verb("restart NAME", "Restart a plugin's process; rules in the kernel forward meanwhile", cobra.ExactArgs(1)), pluginNames)
	c.RunE = func(c *cobra.Command, args []string) error {
		done, err := client(c).Restart(c.Context(), args[0])
		return printDone(c, done, err)
	}
	return c
}

// ago returns the time since at, or "-" if at is not known.
func ago(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return phrase.Since(at, time.Now())
}

// until returns the time until at as "in 5s", or nothing if at is zero.
func until(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return "in " + phrase.Round(max(0, time.Until(at))).String()
}
