// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/sdk"
)

func explainVerb() *cobra.Command {
	var try, watch bool
	var during time.Duration
	c := verb("explain SRC DST:PORT[/PROTOCOL]", "Explain what happens to a packet that is sent to a Service, and why", func(c *cobra.Command, args []string) error {
		if watch && len(args) == 0 {
			return nil
		}
		return cobra.ExactArgs(2)(c, args)
	})
	c.Flags().BoolVar(&try, "try", false, "open a TCP connection to each endpoint that can answer, and print the result")
	c.Flags().BoolVar(&watch, "watch", false, "print packets as they arrive; SRC and DST may be omitted")
	c.Flags().DurationVar(&during, "for", 30*time.Second, "`DURATION` of --watch, up to 10m")
	printing(c, func(c *cobra.Command, args []string) (admin.Explanation, error) {
		x, err := client(c).Explain(c.Context(), args[0], args[1], try)
		if err == nil && x.Verdict == admin.VerdictCannotTell {
			err = errDegraded
		}
		return x, err
	}, writeExplanation)
	explain := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			args = []string{"", ""}
		} else if _, err := admin.ParseQuestion(args[0], args[1]); err != nil {
			return usageError{err}
		}
		switch {
		case !watch:
			return explain(c, args)
		case try || c.Flags().Changed("output"):
			return usageError{errors.New("--watch prints lines, and connects to nothing; try: without -o and --try")}
		case during <= 0 || during > 10*time.Minute:
			return usageError{fmt.Errorf("--for: want a time up to 10m, not %s", during)}
		}
		return watchPackets(c, args[0], args[1], during)
	}
	return c
}

// watchPackets prints what happens to packets.
func watchPackets(c *cobra.Command, from, to string, during time.Duration) error {
	ctx, cancel := context.WithTimeout(c.Context(), during)
	defer cancel()
	fmt.Fprintf(c.ErrOrStderr(), "watching for %s\n", during)
	n := 0
	err := client(c).Watch(ctx, from, to, func(w admin.Watched) {
		n++
		fmt.Fprintln(c.OutOrStdout(), watchedLine(w))
	})
	if err == nil && n == 0 {
		fmt.Fprintln(c.ErrOrStderr(), "no such packet reached the rules; filters before or outside nf_tables are not visible: XDP, traffic control, routes, iptables-legacy")
	}
	return err
}

// watchedLine returns the line for a packet: "15:04:05.000 drop udp 10.0.0.1:7 > 10.0.0.2:53, shop/web:dns/udp4: why; the rule".
func watchedLine(w admin.Watched) string {
	line := fmt.Sprintf("%s %s %s %s > %s", w.Time.Format("15:04:05.000"), w.Verdict, cmp.Or(w.Protocol, "packet"), w.From, w.To)
	if w.Service != "" {
		line += ", " + w.Service
	}
	if w.Reason != "" {
		line += fmt.Sprintf(": %s (%s)", cmp.Or(w.Why, "dropped"), w.Reason)
	}
	if w.Verdict == sdk.Forward.String() {
		return line + " to " + w.At
	}
	return line + "; " + w.At
}

func writeExplanation(w io.Writer, x admin.Explanation) {
	for _, s := range x.Steps {
		writeField(w, s.Question, s.Answer)
	}
	writeField(w, "verdict", x.Verdict)
	writeField(w, "state", x.State+reasonText(x.Why))
	if p := x.Programmed; p != nil {
		writeField(w, "served now", phrase.Some(p.Endpoints))
		writeField(w, "differs", p.Differs)
	}
	if x.Unread != "" {
		writeField(w, "served now", "not known: "+x.Unread)
	}
	k := cmp.Or(x.Kernel, &admin.Traced{})
	if x.Untraced != "" {
		writeField(w, "kernel now", "not known: "+x.Untraced)
	} else if x.Kernel != nil {
		writeField(w, "kernel now", phrase.Some(waysOf(k.Ways)))
	}
	writeField(w, "differs", k.Differs)
	writeItems(w, "note", "", k.Notes)
	writeItems(w, "conntrack", "", k.Connections)
	writeItems(w, "try", "", x.Remedies)
	if len(x.Endpoints) > 0 {
		fmt.Fprintln(w, "\nENDPOINT\tSHARE\tSEES\tTRIED")
	}
	for _, e := range x.Endpoints {
		sees := map[bool]string{true: "this node", false: "the caller"}[e.Masquerade]
		fmt.Fprintf(w, "%s\t%.3g%%\t%s\t%s\n", e.Address, 100*e.Share, sees, cmp.Or(e.Tried, "-"))
	}
	if len(x.Unused) > 0 {
		fmt.Fprintln(w, "\nNOT USED\tWHY")
	}
	for _, e := range x.Unused {
		fmt.Fprintf(w, "%s\t%s\n", e.Address, e.Why)
	}
	if len(k.Ways) > 0 {
		fmt.Fprintf(w, "\nWALK TO %s\n", k.Ways[0].To)
		for _, step := range k.Ways[0].Steps {
			fmt.Fprintln(w, step)
		}
	}
}

// waysOf returns the results of ways, each once: "forward to 10.0.0.1:80".
func waysOf(ways []admin.Way) (all []string) {
	for _, way := range ways {
		text := way.Verdict
		if way.Verdict == "forward" {
			text += " to " + way.To
		}
		if way.Then != "" {
			text = way.To + ", and from there it is up to " + way.Then
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}
