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
	return printing(verb("diff", "Show where the kernel differs from the desired state; changes nothing", cobra.NoArgs), func(c *cobra.Command, _ []string) (admin.Diff, error) {
		d, err := client(c).Diff(c.Context())
		if err == nil && d.Differs() {
			err = errRefused
		}
		return d, err
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
	if d.Differs() {
		fmt.Fprintln(w, phrase.Count(len(d.Changes)+d.More, "difference"))
	} else {
		fmt.Fprintln(w, "nothing differs")
	}
}
