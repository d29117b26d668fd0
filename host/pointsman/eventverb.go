// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

// eventsEach is how often a verb that follows asks again.
const eventsEach = time.Second

func eventsVerb() *cobra.Command {
	var follow bool
	var since time.Duration
	c := &cobra.Command{
		Use:   "events",
		Short: "Print what happened lately, the latest last",
		Long: `Events prints what happened lately, the latest last. What happened several times is one
line, with how often and when it last did. The host remembers 256 different ones.`,
		Args: noWords(),
	}
	out := addFormat(c)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with each one that comes")
	c.Flags().DurationVar(&since, "since", 0, "only what happened in this time until now")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if since < 0 {
			return usageError{fmt.Errorf("--since: want a time such as 10m, not %s", since)}
		}
		if follow && *out != "table" {
			return usageError{fmt.Errorf("--follow prints lines; try: pointsman events -o %s, without it", *out)}
		}
		ctx, stop := untilInterrupt(c.Context())
		defer stop()
		list, err := client(c).Events(ctx)
		if err != nil {
			return err
		}
		if since > 0 {
			list.Items = after(list.Items, time.Now().Add(-since))
		}
		if err := out.print(c.OutOrStdout(), list, func(w io.Writer) { writeEvents(w, list.Items) }); err != nil || !follow {
			return err
		}
		return followEvents(ctx, client(c), c.OutOrStdout(), list.Items)
	}
	return c
}

// after returns the events that last happened after at.
func after(events []admin.Event, at time.Time) []admin.Event {
	return slices.DeleteFunc(events, func(e admin.Event) bool { return !e.Time.After(at) })
}

// followEvents prints those that come after the printed ones, until ctx ends.
func followEvents(ctx context.Context, client *admin.Client, w io.Writer, printed []admin.Event) error {
	var last time.Time
	for {
		if n := len(printed); n > 0 {
			last = printed[n-1].Time
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(eventsEach):
		}
		list, err := client.Events(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		printed = after(list.Items, last)
		for _, e := range printed {
			fmt.Fprintln(w, strings.ReplaceAll(eventLine(e), "\t", "  "))
		}
	}
}

func writeEvents(w io.Writer, events []admin.Event) {
	for _, e := range events {
		fmt.Fprintln(w, eventLine(e))
	}
}

// eventLine returns an event as a line of a table.
func eventLine(e admin.Event) string {
	grade := "normal"
	if e.Warning {
		grade = "warning"
	}
	line := fmt.Sprintf("%s\t%s\t%s\t%s\t%s", e.Time.Format(time.RFC3339), grade, e.Reason, cmp.Or(e.Object, "-"), e.Message)
	if e.Count > 1 {
		line += fmt.Sprintf(" (%s)", phrase.Count(e.Count, "time"))
	}
	return line
}
