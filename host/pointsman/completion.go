// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/dataplanes"
	"github.com/pointsman/pointsman/host/phrase"
)

// completeWithin bounds what a completion asks of the host: the user waits at the prompt. Without
// an answer nothing is offered, and nothing is said.
const completeWithin = time.Second

// completeFlags has a shell complete the values of all flags. A flag has the same values in each
// verb; those that are not named here have none that could be listed.
func completeFlags(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	values := map[string]cobra.CompletionFunc{
		"output":       oneOf("table", "json", "yaml"),
		"mode":         completeModes,
		"namespace":    completeNamespaces,
		"log-level":    oneOf("trace", "debug", "info", "warn", "error"),
		"log-format":   oneOf("text", "json"),
		"config":       completeYAML,
		"kubeconfig":   completeFiles,
		"files":        completeFiles,
		"admin-socket": completeFiles,
		"plugin-dir":   completeFolders,
		"state-dir":    completeFolders,
	}
	for _, c := range everyVerb(root) {
		for name, complete := range values {
			if c.LocalFlags().Lookup(name) != nil {
				_ = c.RegisterFlagCompletionFunc(name, complete) // errs only where there is no such flag, or twice
			}
		}
	}
}

// everyVerb returns c and all verbs below it.
func everyVerb(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, below := range c.Commands() {
		all = append(all, everyVerb(below)...)
	}
	return all
}

// oneOf offers words that stay the same, in this order.
func oneOf(all ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder)
}

func completeFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

func completeFolders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

func completeYAML(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// eachWord offers for each word of a verb what its own function does, and nothing behind the last.
func eachWord(each ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(each) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return each[len(args)](c, args, begun)
	}
}

// beginning returns those of words that begin as what was typed, without repetitions. Each may
// have a description behind a tab.
func beginning(words []string, begun string) ([]string, cobra.ShellCompDirective) {
	words = slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, begun) })
	slices.Sort(words)
	return slices.Compact(words), cobra.ShellCompDirectiveNoFileComp
}

// completePlugins offers the plugins that the host has, or without a host those on this machine.
func completePlugins(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completeWithin)
	defer cancel()
	var names []string
	if list, err := client(c).Plugins(ctx); err == nil {
		for _, p := range list.Items {
			names = append(names, cobra.CompletionWithDesc(p.Name, p.State))
		}
	} else if s, err := settings(c); err == nil {
		for _, f := range dataplanes.Discover(s) {
			names = append(names, f.Name)
		}
	}
	return beginning(names, begun)
}

// completePluginsOrFiles also offers files, where no plugin begins as what was typed.
func completePluginsOrFiles(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	names, directive := completePlugins(c, args, begun)
	if len(names) == 0 {
		directive = cobra.ShellCompDirectiveDefault
	}
	return names, directive
}

// completeModes offers the plugins, and auto where it is a setting.
func completeModes(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	names, _ := completePlugins(c, args, begun)
	if c.Name() == "run" || c.Name() == "show" {
		names = append(names, cobra.CompletionWithDesc("auto", "the best one that this node can run"))
	}
	return beginning(names, begun)
}

// servicesNow returns all Services; none without a host.
func servicesNow(c *cobra.Command) []admin.Service {
	ctx, cancel := context.WithTimeout(c.Context(), completeWithin)
	defer cancel()
	list, _ := client(c).Services(ctx) // a completion is silent where no host answers
	return list.Items
}

// completeServices offers all Services, each with the states of its ports.
func completeServices(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, s := range servicesNow(c) {
		var states []string
		for _, p := range s.Ports {
			states = append(states, p.State)
		}
		slices.Sort(states)
		names = append(names, cobra.CompletionWithDesc(s.Namespace+"/"+s.Name, phrase.List(slices.Compact(states))))
	}
	return beginning(names, begun)
}

func completeNamespaces(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, s := range servicesNow(c) {
		names = append(names, s.Namespace)
	}
	return beginning(names, begun)
}

// completeCallers offers what SRC of explain may begin with.
func completeCallers(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	kinds := []string{
		cobra.CompletionWithDesc(admin.CallerNode, "a process of this node"),
		cobra.CompletionWithDesc(admin.CallerPod+":", "a pod of this node, by its address"),
		cobra.CompletionWithDesc(admin.CallerOutside+":", "another machine, by its address"),
	}
	words, directive := beginning(kinds, begun)
	return words, directive | cobra.ShellCompDirectiveNoSpace
}

// completeFrontends offers where Services are reached, but for node ports, which have no one address.
func completeFrontends(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var all []string
	for _, s := range servicesNow(c) {
		for _, p := range s.Ports {
			for _, frontend := range p.Frontends {
				if to, ok := p.Destination(frontend); ok {
					all = append(all, cobra.CompletionWithDesc(to, s.PortName(p)))
				}
			}
		}
	}
	return beginning(all, begun)
}
