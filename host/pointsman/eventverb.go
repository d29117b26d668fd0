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
	var follow bool
	var since time.Duration
	c := &cobra.Command{
		Use:   "events",
		Short: "Print recent events, the latest last",
		Args:  cobra.NoArgs,
	}
	out := addFormat(c)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new events until Ctrl-C")
	c.Flags().DurationVar(&since, "since", 0, "only events of this last `DURATION`, such as 10m")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if since < 0 {
			return usageError{fmt.Errorf("--since: want a time such as 10m, not %s", since)}
		}
		if follow && *out != "table" {
			return usageError{fmt.Errorf("--follow prints lines; try: pointsman events -o %s, without it", *out)}
		}
		var last time.Time
		if since > 0 {
			last = time.Now().Add(-since)
		}
		for {
			list, err := client(c).Events(c.Context())
			if follow && c.Context().Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			list.Items = slices.DeleteFunc(list.Items, func(e admin.Event) bool { return !e.Time.After(last) })
			if n := len(list.Items); n > 0 {
				last = list.Items[n-1].Time
			}
			if err := out.print(c.OutOrStdout(), list, func(w io.Writer) { writeEvents(w, list.Items) }); err != nil || !follow {
				return err
			}
			select {
			case <-c.Context().Done():
				return nil
			case <-time.After(time.Second):
			}
		}
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
