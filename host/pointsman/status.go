// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/doctor"
	"github.com/pointsman/pointsman/host/phrase"
)

// shownProblems limits the lines of one kind in a table.
const shownProblems = 10

func statusVerb() *cobra.Command {
	var limit, stays time.Duration
	var watch bool
	c := verb("status", "Show the state of the running host", cobra.NoArgs)
	out := addFormat(c)
	c.Flags().DurationVar(&limit, "wait", 0, "wait up to this `DURATION` until all is well")
	c.Flags().DurationVar(&stays, "until-well", 0, "wait up to this `DURATION` until all stays well, and print changes to stderr")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print the status each second until Ctrl-C")
	print := func(c *cobra.Command, s admin.Status) error {
		return out.print(c.OutOrStdout(), s, func(w io.Writer) { writeStatus(w, s) })
	}
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		var s admin.Status
		host := client(c)
		switch {
		case watch:
			return watchStatus(c, host, print)
		case stays > 0:
			s, err = waitUntilWell(c.Context(), host, stays, 2*time.Second, func(state string) {
				fmt.Fprintf(c.ErrOrStderr(), "%s  %s\n", time.Now().Format(time.TimeOnly), state)
			})
		default:
			s, err = waitUntilWell(c.Context(), host, limit, 0, func(string) {})
		}
		if err == nil {
			err = print(c, s)
		}
		if err == nil && !s.Healthy {
			err = errDegraded
		}
		return err
	}
	return c
}

// watchStatus prints the status, or why there is none, each second until the user interrupts it. On a
// terminal it first moves the cursor to the top and erases the screen (ECMA-48).
func watchStatus(c *cobra.Command, host *admin.Client, print func(*cobra.Command, admin.Status) error) error {
	before, after := "", "\n"
	if isTerminal(c.OutOrStdout()) {
		before, after = "\x1b[H\x1b[2J", ""
	}
	return follow(c, time.Second, func() error {
		s, err := host.Status(c.Context())
		fmt.Fprint(c.OutOrStdout(), before)
		if err != nil {
			fmt.Fprintf(c.OutOrStdout(), "pointsman: %v\n", err)
		} else if err := print(c, s); err != nil {
			return err
		}
		fmt.Fprint(c.OutOrStdout(), after)
		return nil
	})
}

// follow calls f each period until the user interrupts it.
func follow(c *cobra.Command, period time.Duration, f func() error) error {
	err := wait.PollUntilContextCancel(c.Context(), period, true, func(context.Context) (bool, error) { return false, f() })
	if c.Context().Err() != nil {
		return nil
	}
	return err
}

// waitUntilWell polls the status until the node has been well for stay without a break, or limit is over
// and the node is not well. It calls report when the state changes, and returns the last status.
func waitUntilWell(ctx context.Context, client *admin.Client, limit, stay time.Duration, report func(state string)) (s admin.Status, err error) {
	deadline := time.Now().Add(limit)
	var well time.Time // since when the node is well; zero if it is not
	var reported string
	stopped := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		s, err = client.Status(ctx)
		now := time.Now()
		switch {
		case err != nil || !s.Healthy:
			well = time.Time{}
		case well.IsZero() && s.Sync.Pending == 0: // later changes may be pending
			well = now
		}
		if name, text := stateOf(s, err, well.IsZero()); name != reported {
			reported = name
			report(text)
		}
		if !well.IsZero() {
			return now.Sub(well) >= stay, nil
		}
		again := err == nil || errors.Is(err, admin.ErrUnreachable)
		return !again || !now.Before(deadline), nil
	})
	return s, cmp.Or(stopped, err)
}

// stateOf returns a line for the answer s or err. pending means that the dataplane has not confirmed
// earlier changes. The name stays the same while only times in the text change.
func stateOf(s admin.Status, err error, pending bool) (name, text string) {
	switch {
	case err != nil:
		return "away", oneLineOf(err)
	case !s.Healthy:
		var codes, texts []string
		for _, w := range s.Warnings {
			codes, texts = append(codes, w.Code), append(texts, w.Code+" "+w.Text)
		}
		return strings.Join(codes, " "), "not well: " + strings.Join(texts, "; ")
	case pending:
		return "pending", "well, but for changes that the dataplane has not confirmed"
	}
	return "well", "well"
}

func writeStatus(w io.Writer, s admin.Status) {
	writeField(w, "node", fmt.Sprintf("%s %v", s.Node.Name, s.Node.Addrs))
	writeField(w, "host", fmt.Sprintf("%s, pid %d, up %s", s.Host.Version, s.Host.PID, ago(s.Host.Started)))
	writeField(w, "source", fmt.Sprintf("%s: %s, %s, %s", s.Source, phrase.Count(s.Services.Services, "Service"), phrase.Count(s.Services.EndpointSlices, "EndpointSlice"), phrase.Count(s.Services.Endpoints, "endpoint")))
	writeField(w, "mode", s.Mode)
	writeField(w, "", s.Auto)
	writeDataplane(w, s.Dataplane)
	if s.Swap != nil {
		writeField(w, "swap", fmt.Sprintf("%s → %s: %s for %s", s.Swap.From, s.Swap.To, s.Swap.Stage, ago(s.Swap.Since)))
	}
	if s.Sync.Last.IsZero() {
		writeField(w, "sync", "none yet")
	} else {
		writeField(w, "sync", fmt.Sprintf("revision %d of %d, %d pending; the last %s ago, in %.1f ms", s.Sync.Acked, s.Sync.Sent, s.Sync.Pending, ago(s.Sync.Last), s.Sync.TookMS))
	}
	if s.Config.Path != "" {
		writeField(w, "config", fmt.Sprintf("%s, loaded %s ago", s.Config.Path, ago(s.Config.Loaded)))
	}
	if p := s.Probes; !p.Healthz || !p.Livez || !p.Readyz {
		code := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}
		writeField(w, "probes", fmt.Sprintf("healthz %d, livez %d, readyz %d", code[p.Healthz], code[p.Livez], code[p.Readyz]))
	}
	writeUnserved(w, s.Unserved)
	for _, warning := range s.Warnings {
		writeField(w, "warning", paint(w, doctor.Warn, warning.Code)+" "+warning.Text)
		if warning.Try != "" {
			writeField(w, "", "     try: "+warning.Try)
		}
	}
	if s.Healthy {
		writeField(w, "all", paint(w, doctor.OK, "is well"))
	}
}

// writeUnserved writes a line for each cause, with the first Services that it affects.
func writeUnserved(w io.Writer, problems []admin.Problem) {
	type cause struct{ reason, why string }
	var causes []cause
	services := make(map[cause][]string)
	for _, p := range problems {
		c := cause{p.Reason, p.Why}
		if services[c] == nil {
			causes = append(causes, c)
		}
		services[c] = append(services[c], p.Service)
	}
	for _, c := range causes[:min(shownProblems, len(causes))] {
		writeField(w, "unserved", fmt.Sprintf("%s %s: %s", phrase.Some(services[c]), paint(w, doctor.Fail, c.reason), c.why))
	}
	if more := len(causes) - shownProblems; more > 0 {
		writeField(w, "unserved", "… and "+phrase.Count(more, "further cause")+": pointsman status -o yaml")
	}
}

func writeDataplane(w io.Writer, d admin.Plugin) {
	if d.PID == 0 {
		writeField(w, "dataplane", d.Name+" is "+d.State+reasonText(d.Why))
	} else {
		writeField(w, "dataplane", fmt.Sprintf("%s %s is %s, pid %d, up %s, %s", d.Name, d.Version, cmp.Or(d.Role, "without a role yet"), d.PID, ago(d.Up), phrase.Count(d.Restarts, "restart")))
	}
	if !d.Next.IsZero() {
		writeField(w, "", "next try "+until(d.Next))
	}
	if d.Lock == "awaited" {
		writeField(w, "", "not the writer"+reasonText(d.Holder))
	}
	if d.Waiting != "" {
		writeField(w, "", d.Call+" waits for "+d.Waiting)
	}
	writeItems(w, "note", "", d.Notes)
}
