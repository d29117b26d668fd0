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
	c := &cobra.Command{
		Use:   "diff",
		Short: "Say where the kernel serves something else than it should, and change nothing",
		Long: `Diff compares what each Service asks for with what the dataplane reads from the kernel: which
frontends are there, and which endpoints each leads to. What another program has removed or replaced
is repaired within seconds, and shows only until then.

It exits 0 when nothing differs, 1 when something does.`,
		Args: noWords(),
	}
	out := addFormat(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		d, err := client(c).Diff(c.Context())
		if err == nil {
			err = out.print(c.OutOrStdout(), d, func(w io.Writer) { writeDiff(w, d) })
		}
		if err == nil && d.Differs() {
			err = errRefused
		}
		return err
	}
	return c
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
	if d.Differs() {
		fmt.Fprintln(w, phrase.Count(len(d.Changes)+d.More, "difference"))
	} else {
		fmt.Fprintln(w, "nothing differs")
	}
}
