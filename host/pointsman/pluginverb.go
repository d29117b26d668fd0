// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/dataplanes"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/supervise"
)

func pluginVerb() *cobra.Command {
	return group("plugin", "List, examine and restart dataplane plugins, and begin one",
		pluginListVerb(), pluginInfoVerb(), pluginCheckVerb(), pluginLogsVerb(), pluginRestartVerb(), pluginNewVerb(), conformanceVerb())
}

func pluginListVerb() *cobra.Command {
	return asking(&cobra.Command{
		Use:   "list",
		Short: "List the plugins on this machine, and which one the running host uses",
		Args:  noWords(),
	}, func(c *cobra.Command, _ []string) (admin.PluginList, error) { return plugins(c) }, func(w io.Writer, list admin.PluginList) {
		fmt.Fprintln(w, "NAME\tSTATE\tVERSION\tPID\tRESTARTS\tPATH")
		for _, p := range list.Items {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", p.Name, p.State, cmp.Or(p.Version, "-"), cmp.Or(pidText(p.PID), "-"), p.Restarts, p.Path)
		}
	})
}

// plugins asks the running host; without one it looks for itself.
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
	for _, f := range dataplanes.Discover(s) {
		list.Items = append(list.Items, dataplanes.Describe(c.Context(), f, s.Plugins[f.Name].SHA256))
	}
	return list, nil
}

func pluginInfoVerb() *cobra.Command {
	return asking(&cobra.Command{
		Use:   "info NAME|PATH",
		Short: "Tell all about one plugin: its process, what it serves, its limits and options",
		Args:  words(1, 1, aPlugin),

		ValidArgsFunction: eachWord(completePluginsOrFiles),
	}, func(c *cobra.Command, args []string) (admin.Plugin, error) { return plugin(c, args[0]) }, writePlugin)
}

func plugin(c *cobra.Command, name string) (admin.Plugin, error) {
	if f, ok := binaryAt(name); ok {
		p := dataplanes.Describe(c.Context(), f, "")
		if p.Why != "" {
			return p, errors.New(p.Why)
		}
		return p, nil
	}
	list, err := plugins(c)
	if err != nil {
		return admin.Plugin{}, err
	}
	var there []string
	for _, p := range list.Items {
		if p.Name == name {
			return described(c, p)
		}
		there = append(there, p.Name)
	}
	return admin.Plugin{}, dataplanes.UnknownPlugin(name, there)
}

// described completes what a host says of a plugin that it does not use by what its binary says.
func described(c *cobra.Command, p admin.Plugin) (admin.Plugin, error) {
	if p.Version != "" || p.InUse {
		return p, nil
	}
	s, err := settings(c)
	if err != nil {
		return p, err
	}
	return dataplanes.Describe(c.Context(), supervise.Found{Name: p.Name, Path: p.Path}, s.Plugins[p.Name].SHA256), nil
}

func writePlugin(w io.Writer, p admin.Plugin) {
	now := time.Now()
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(w, "%s\t%s\n", label, text)
		}
	}
	line("name", p.Name)
	line("version", p.Version)
	line("path", p.Path)
	line("state", p.State)
	line("why", p.Why)
	if !p.Next.IsZero() {
		line("tried again", "in "+phrase.Round(max(0, p.Next.Sub(now))).String())
	}
	line("role", p.Role)
	line("call", p.Call)
	line("writer's lock", p.Lock)
	line("held by", p.Holder)
	line("waits for", p.Waiting)
	line("pid", pidText(p.PID))
	if !p.Up.IsZero() {
		line("up", phrase.Since(p.Up, now))
	}
	line("restarts", fmt.Sprint(p.Restarts))
	if !p.EndedAt.IsZero() {
		line("last end", fmt.Sprintf("%s ago: %s", phrase.Since(p.EndedAt, now), p.LastEnd))
	}
	if p.Memory > 0 {
		line("memory", fmt.Sprintf("%.1f MiB", float64(p.Memory)/(1<<20)))
	}
	line("serves", phrase.List(p.Features))
	line("limits", phrase.List(p.Limits))
	for i, option := range schemaLines(p.Options) {
		line(map[bool]string{true: "options"}[i == 0], option)
	}
}

func pidText(pid int) string {
	if pid == 0 {
		return ""
	}
	return fmt.Sprint(pid)
}

func pluginLogsVerb() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the last lines of a plugin's log",
		Args:  words(1, 1, "the name of a plugin"),

		ValidArgsFunction: eachWord(completePlugins),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := untilInterrupt(c.Context())
			defer stop()
			return client(c).Logs(ctx, args[0], follow, func(l admin.LogLine) {
				fmt.Fprintln(c.OutOrStdout(), l.Message)
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with each line that comes")
	return c
}

func pluginRestartVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "restart NAME",
		Short: "Start a plugin's process anew; what it keeps in the kernel serves meanwhile",
		Args:  words(1, 1, "the name of a plugin"),

		ValidArgsFunction: eachWord(completePlugins),
		RunE: acting(func(c *cobra.Command, args []string) (admin.Done, error) {
			return client(c).Restart(c.Context(), args[0])
		}),
	}
}
