// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

func diffVerb() *cobra.Command {
	var mode string
	c := &cobra.Command{
		Use:   "diff",
		Short: "Say where the kernel has something else than it should, and change nothing",
		Long: `Diff says what would be written and removed if the host had the dataplane write everything
now: where the kernel has something else than the Services ask for. What another program has
removed or replaced is repaired within seconds, and shows only until then.

With --mode it is what the dataplane of another mode would write. It exits 0 when nothing
differs, 2 when something does.`,
		Example: `  pointsman diff
  pointsman diff --mode ipvs`,
		Args: noWords(),
	}
	c.Flags().StringVar(&mode, "mode", "", "another mode than the one that serves")
	return planning(c, func(c *cobra.Command, _ []string) (admin.Diff, admin.Outcome, error) {
		d, err := client(c).Diff(c.Context(), mode)
		outcome := admin.Go
		if d.Differs() {
			outcome = admin.Look
		}
		return d, outcome, err
	}, writeDiff)
}

func writeDiff(w io.Writer, d admin.Diff) {
	for _, change := range d.Changes {
		fmt.Fprintln(w, change.Step)
		for _, detail := range change.Details {
			fmt.Fprintln(w, "    "+detail)
		}
	}
	if d.More > 0 {
		fmt.Fprintf(w, "and %d more\n", d.More)
	}
	for _, p := range d.Unserved {
		fmt.Fprintf(w, "not served: %s: %s\n", p.Service, p.Why)
	}
	for _, note := range d.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	of := ""
	if !d.Serves {
		of = " of " + d.Mode
	}
	if d.Differs() {
		fmt.Fprintf(w, "%s%s would be made\n", phrase.Count(len(d.Changes)+d.More, "change"), of)
	} else {
		fmt.Fprintf(w, "nothing differs%s\n", of)
	}
}
