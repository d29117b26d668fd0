// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

func modeVerb() *cobra.Command {
	return group("mode", "Show the mode, swap it under traffic, or reset it",
		modeShowVerb(), modeSwapVerb(), modeResetVerb())
}

func modeShowVerb() *cobra.Command {
	return printing(&cobra.Command{
		Use:   "show",
		Short: "Show the serving mode, and the progress of a swap",
		Args:  cobra.NoArgs,
	}, func(c *cobra.Command, _ []string) (admin.Mode, error) { return client(c).Mode(c.Context()) }, writeMode)
}

func writeMode(w io.Writer, m admin.Mode) {
	now := time.Now()
	writeField(w, "mode", "%s", m.Mode)
	if m.Wanted != m.Mode {
		writeField(w, "wanted", "%s", m.Wanted)
	}
	switch {
	case m.Asked != "":
		writeField(w, "asked for", "%s, by pointsman mode swap; the config file says %s", m.Asked, m.File)
	case m.Auto != "":
		writeField(w, "config file", "%s", m.Auto)
	case m.File != m.Mode:
		writeField(w, "config file", "%s", m.File)
	}
	if s := m.Swap; s != nil {
		writeField(w, "swap", "%s → %s: %s for %s (%s)", s.From, s.To, s.Stage, phrase.Since(s.Since, now), s.Why)
		writeField(w, "undone", "%s", s.Undo)
		if !s.Until.IsZero() {
			writeField(w, "draining", "%s of %s; cut in %s at the latest", phrase.Count(s.Flows, "connection"), s.Leaves(), phrase.Round(max(0, s.Until.Sub(now))))
		}
	}
	if l := m.Last; l != nil {
		how := "made"
		switch {
		case l.DryRun && l.Error == "":
			how = "a dry run: it can be made"
		case l.DryRun:
			how = "a dry run: it would fail: " + l.Error
		case l.Error != "":
			how = "undone: " + l.Error
		}
		writeField(w, "last swap", "%s → %s, %s ago%s, %s", l.From, l.To, phrase.Since(l.At, now), durationText(l.Seconds), how)
		if !l.Again.IsZero() {
			writeField(w, "next try", "in %s", phrase.Round(max(0, l.Again.Sub(now))))
		}
		writeField(w, "not finished", "%s", l.Left)
	}
	if len(m.Left) > 0 {
		writeField(w, "left", "%s may have rules in the kernel, which are cleaned up once the wanted mode serves", phrase.List(m.Left))
	}
}

func modeSwapVerb() *cobra.Command {
	var wait time.Duration
	var force, dryRun bool
	c := &cobra.Command{
		Use:   "swap MODE",
		Short: "Change the mode while connections continue",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: completePlugins,
	}
	c.Flags().DurationVar(&wait, "wait", 0, "wait up to this `DURATION` for the new mode to serve")
	c.Flags().Lookup("wait").NoOptDefVal = "3m"
	c.Flags().BoolVar(&force, "force", false, "swap even if Services or connections are lost")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only find out whether the swap can be made")
	c.RunE = func(c *cobra.Command, args []string) error {
		began := time.Now()
		done, err := client(c).SwapMode(c.Context(), admin.SwapAsk{To: args[0], Force: force, DryRun: dryRun})
		if err != nil {
			return err
		}
		if dryRun && wait == 0 {
			wait = 3 * time.Minute
		}
		if wait > 0 {
			return awaitSwap(c.Context(), client(c), args[0], dryRun, began, wait, c.OutOrStdout())
		}
		fmt.Fprintln(c.OutOrStdout(), done.Message)
		return nil
	}
	return c
}

// errSuperseded ends the wait for a swap.
var errSuperseded = errors.New(admin.Superseded)

// awaitSwap waits until the swap to a mode has succeeded or failed, and returns the failure.
func awaitSwap(ctx context.Context, client *admin.Client, to string, dryRun bool, began time.Time, wait time.Duration, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		m, err := client.Mode(ctx)
		if err != nil {
			return err
		}
		s, last := m.Swap, m.Last
		ours := s != nil && s.To == to && (s.Began.After(began) || s.Moved()) // or it was in progress already
		ended := last != nil && last.To == to && last.At.After(began) && (s == nil || last.Error != "")
		switch {
		case !dryRun && m.Wanted != to:
			return fmt.Errorf("%w meanwhile: %s", errSuperseded, m.Wanted)
		case ended && last.Error == admin.Superseded: // and then this mode again
			return errSuperseded
		case ours && s.Moved():
			leaves := s.From
			if leaves == s.To {
				leaves = "its previous process"
			}
			fmt.Fprintf(w, "%s serves; %s drains\n", s.To, leaves)
			return nil
		case ours && s.Undo != "" && s.Stage == "draining" && s.Flows > 0:
			return fmt.Errorf("the swap to %s was undone, and %s continues to serve: %s; %s still drains", s.To, s.From, s.Undo, s.To)
		case ended && last.DryRun && last.Error == "":
			fmt.Fprintf(w, "%s can serve all that %s serves now\n", last.To, last.From)
			return nil
		case ended && last.DryRun:
			return fmt.Errorf("a swap to %s would fail: %s", last.To, last.Error)
		case ended && last.Error != "":
			return fmt.Errorf("the swap to %s was undone, and %s continues to serve: %s%s", last.To, last.From, last.Error, last.Retried(time.Now()))
		case ended && last.Left != "":
			return fmt.Errorf("the swap to %s is not finished: %s", last.To, last.Left)
		case ended:
			fmt.Fprintf(w, "%s serves\n", last.To)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the swap is still in progress after %s; try: pointsman mode show", wait)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func modeResetVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "reset",
		Short: "Roll back a swap in progress, or return to the mode of the config file",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			done, err := client(c).ResetMode(c.Context())
			if err == nil {
				fmt.Fprintln(c.OutOrStdout(), done.Message)
			}
			return err
		},
	}
}

// durationText returns the duration of a swap, if it is known.
func durationText(seconds float64) string {
	if seconds <= 0 {
		return ""
	}
	return fmt.Sprintf(", in %.1f s", seconds)
}
