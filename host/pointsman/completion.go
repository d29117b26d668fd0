// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/dataplanes"
)

// completeWithin limits how long a completion waits for the host, because the user waits at the
// prompt. Without an answer it offers nothing.
const completeWithin = time.Second

// completePlugins offers the names of the host's plugins, or without a host of those on this machine.
func completePlugins(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completeWithin)
	defer cancel()
	if list, err := client(c).Plugins(ctx); err == nil {
		for _, p := range list.Items {
			names = append(names, cobra.CompletionWithDesc(p.Name, p.State))
		}
	} else if s, err := settings(c); err == nil {
		for _, f := range dataplanes.Discover(s) {
			names = append(names, f.Name)
		}
	}
	return onlyFirst(args, names), cobra.ShellCompDirectiveNoFileComp
}

// completeServices offers the names of all Services.
func completeServices(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completeWithin)
	defer cancel()
	list, _ := client(c).Services(ctx) // empty if no host answers
	for _, s := range list.Items {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	return onlyFirst(args, names), cobra.ShellCompDirectiveNoFileComp
}

// onlyFirst returns names if the first argument is being completed.
func onlyFirst(args, names []string) []string {
	if len(args) > 0 {
		return nil
	}
	return names
}
