// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
)

// planning completes c, a verb that says what would happen: it prints that, and exits by the outcome.
func planning[T any](c *cobra.Command, plan func(*cobra.Command, []string) (T, admin.Outcome, error), table func(io.Writer, T)) *cobra.Command {
	out := addFormat(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		p, outcome, err := plan(c, args)
		if err == nil {
			err = out.print(c.OutOrStdout(), p, func(w io.Writer) { table(w, p) })
		}
		switch {
		case err != nil:
			return err
		case outcome == admin.No:
			return errRefused
		case outcome == admin.Look:
			return errDegraded
		}
		return nil
	}
	return c
}

// writeItems writes the lines under one label; where there are none, none, unless that is empty.
func writeItems(w io.Writer, label, none string, items []string) {
	if len(items) == 0 && none != "" {
		items = []string{none}
	}
	for _, item := range items {
		fmt.Fprintf(w, "%s\t%s\n", label, item)
		label = ""
	}
}
