// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

func eventsVerb() *cobra.Command {
	var follows bool
	var since time.Duration
	c := verb("events", "Print recent events, the latest last", cobra.NoArgs)
	out := addFormat(c)
	c.Flags().BoolVarP(&follows, "follow", "f", false, "continue with new events until Ctrl-C")
	c.Flags().DurationVar(&since, "since", 0, "only events of this last `DURATION`, such as 10m")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if since < 0 {
			return usageError{fmt.Errorf("--since: want a time such as 10m, not %s", since)}
		}
		if follows && *out != "table" {
			return usageError{fmt.Errorf("--follow prints lines; try: pointsman events -o %s, without it", *out)}
		}
		var last time.Time
		if since > 0 {
			last = time.Now().Add(-since)
		}
		print := func() error {
			list, err := client(c).Events(c.Context())
			if err != nil {
				return err
			}
			list.Items = slices.DeleteFunc(list.Items, func(e admin.Event) bool { return !e.Time.After(last) })
			for _, e := range list.Items {
				last = e.Time
			}
			return out.print(c.OutOrStdout(), list, func(w io.Writer) { writeEvents(w, list.Items) })
		}
		if follows {
			return follow(c, time.Second, print)
		}
		return print()
	}
	return c
}

func writeEvents(w io.Writer, events []admin.Event) {
	for _, e := range events {
		grade, times := "normal", ""
		if e.Warning {
			grade = "warning"
		}
		if e.Count > 1 {
			times = fmt.Sprintf(" (%s)", phrase.Count(e.Count, "time"))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s%s\n", e.Time.Format(time.RFC3339), grade, e.Reason, cmp.Or(e.Object, "-"), e.Message, times)
	}
}
