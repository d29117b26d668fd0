// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/demo"
)

func demoVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show it at work on this machine, in under a minute, without root",
		Long: `Demo shows Pointsman at work on this machine, in under a minute, without root. As root
it does so in a network namespace of its own, and then also changes the mode while
requests run.`,
		Args: noWords(),
		RunE: func(c *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			path, _ := c.Flags().GetString("config") // every verb has these two
			dirs, _ := c.Flags().GetStringSlice("plugin-dir")
			ctx, stop := untilInterrupt(c.Context())
			defer stop()
			return demo.Run(ctx, demo.Settings{Binary: self, Config: path, PluginDir: dirs, Out: c.OutOrStdout()})
		},
	}
}
