// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/binaries"
)

// completionTimeout limits how long a completion waits for the host, because the user waits at the
// prompt. Without an answer it offers nothing.
const completionTimeout = time.Second

// completePlugins offers the names of the host's plugins, or without a host of those on this machine. A
// word with a slash is the path of a file.
func completePlugins(c *cobra.Command, args []string, word string) (names []string, _ cobra.ShellCompDirective) {
	switch {
	case len(args) > 0:
		return nil, cobra.ShellCompDirectiveNoFileComp
	case strings.Contains(word, "/"):
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
	defer cancel()
	if list, err := client(c).Plugins(ctx); err == nil {
		for _, p := range list.Items {
			names = append(names, cobra.CompletionWithDesc(p.Name, p.State))
		}
	} else if s, err := settings(c); err == nil {
		for _, f := range binaries.Discover(s) {
			names = append(names, f.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeServices offers the names of all Services.
func completeServices(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
	defer cancel()
	list, _ := client(c).Services(ctx) // empty if no host answers
	for _, s := range list.Items {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
