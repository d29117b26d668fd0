// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
)

func pluginVerb() *cobra.Command {
	return group("plugin", "List, check and restart dataplane plugins, or create one",
		pluginListVerb(), pluginInfoVerb(), pluginCheckVerb(), pluginLogsVerb(), pluginRestartVerb(), pluginNewVerb())
}

func pluginListVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the plugins on this machine, and which one the running host uses",
		Args:  cobra.NoArgs,
	}
	return printing(c, func(c *cobra.Command, _ []string) (admin.PluginList, error) { return plugins(c) }, func(w io.Writer, list admin.PluginList) {
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

// plugins returns the plugins of the running host, or without a host those on this machine.
func plugins(c *cobra.Command) (admin.PluginList, error) {
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
}

func pluginInfoVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "info NAME|PATH",
		Short: "Show one plugin: its process, features, limits and options",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: completePlugins,
	}
	return printing(c, func(c *cobra.Command, args []string) (admin.Plugin, error) { return plugin(c, args[0]) }, writePlugin)
}

// plugin returns the plugin with a name or path. If the host does not use it, its binary describes it.
func plugin(c *cobra.Command, name string) (admin.Plugin, error) {
	if f, ok := binaryAt(name); ok {
		p := binaries.Describe(c.Context(), f, "")
		if p.Why != "" {
			return p, errors.New(p.Why)
		}
		return p, nil
	}
	list, err := plugins(c)
	if err != nil {
		return admin.Plugin{}, err
	}
	var names []string
	for _, p := range list.Items {
		names = append(names, p.Name)
		if p.Name != name {
			continue
		}
		if p.Version != "" || p.InUse {
			return p, nil
		}
		s, err := settings(c)
		if err != nil {
			return p, err
		}
		return binaries.Describe(c.Context(), launch.Found{Name: p.Name, Path: p.Path}, s.Plugins[p.Name].SHA256), nil
	}
	return admin.Plugin{}, binaries.UnknownPlugin(name, names)
}

func writePlugin(w io.Writer, p admin.Plugin) {
	now := time.Now()
	writeField(w, "name", "%s", p.Name)
	writeField(w, "version", "%s", p.Version)
	writeField(w, "path", "%s", p.Path)
	writeField(w, "state", "%s", p.State)
	writeField(w, "why", "%s", p.Why)
	if !p.Next.IsZero() {
		writeField(w, "tried again", "in %s", phrase.Round(max(0, p.Next.Sub(now))))
	}
	writeField(w, "role", "%s", p.Role)
	writeField(w, "call", "%s", p.Call)
	writeField(w, "writer's lock", "%s", p.Lock)
	writeField(w, "held by", "%s", p.Holder)
	writeField(w, "waits for", "%s", p.Waiting)
	if p.PID != 0 {
		writeField(w, "pid", "%d", p.PID)
	}
	if !p.Up.IsZero() {
		writeField(w, "up", "%s", phrase.Since(p.Up, now))
	}
	writeField(w, "restarts", "%d", p.Restarts)
	if !p.EndedAt.IsZero() {
		writeField(w, "last end", "%s ago: %s", phrase.Since(p.EndedAt, now), p.LastEnd)
	}
	if p.Memory > 0 {
		writeField(w, "memory", "%.1f MiB", float64(p.Memory)/(1<<20))
	}
	writeField(w, "serves", "%s", phrase.List(p.Features))
	writeField(w, "limits", "%s", phrase.List(p.Limits))
	writeItems(w, "options", "", optionLines(p.Options))
}

// optionLines describes the options of a plugin by its JSON schema, one per line. Options within an
// option are in the JSON of the verb, and in the plugin's documentation.
func optionLines(text json.RawMessage) (lines []string) {
	var schema struct {
		Properties map[string]struct {
			Type        any             `json:"type"` // a string or a list of strings
			Enum        []any           `json:"enum"`
			Default     json.RawMessage `json:"default"`
			Description string          `json:"description"`
			Fixed       bool            `json:"x-pointsman-fixed"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil
	}
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
	c := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the last lines of a plugin's log",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: completePlugins,
		RunE: func(c *cobra.Command, args []string) error {
			return client(c).Logs(c.Context(), args[0], follow, func(l admin.LogLine) {
				fmt.Fprintln(c.OutOrStdout(), l.Message)
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new lines until Ctrl-C")
	return c
}

func pluginRestartVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "restart NAME",
		Short: "Restart a plugin's process; rules in the kernel forward meanwhile",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: completePlugins,
		RunE: func(c *cobra.Command, args []string) error {
			done, err := client(c).Restart(c.Context(), args[0])
			if err == nil {
				fmt.Fprintln(c.OutOrStdout(), done.Message)
			}
			return err
		},
	}
}
