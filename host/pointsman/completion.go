// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout limits how long a completion waits for the host, because the user waits at the
// prompt. Without an answer it offers nothing.
const completionTimeout = time.Second

// completing completes the first argument of c by the names that the host knows.
func completing(c *cobra.Command, names func(context.Context, *cobra.Command) []string) *cobra.Command {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		return names(ctx, c), cobra.ShellCompDirectiveDefault // files, where no name matches: a plugin can be named by its path
	}
	return c
}
