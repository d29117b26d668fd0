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
	c := &cobra.Command{
		Use:   "explain SRC DST:PORT[/PROTOCOL]",
		Short: "Say what becomes of a packet that is sent to a Service, and why",
		Long: `Explain says what becomes of the first packet of a connection on this node: to which frontend
of which Service it comes, whether it may, which endpoints may answer, what the dataplane has
there at this moment, and how the packet goes through the rules of this node, also those of
other programs.

SRC is an address, node (a process of this node), pod:ADDRESS (a pod of this node) or
outside:ADDRESS (another machine). PROTOCOL is tcp, udp or sctp. It exits 2 when it cannot tell.

With --watch it prints what becomes of such packets while they come, a line each; without SRC and DST,
of all new connections that a rule drops or rejects. The dataplane has the kernel trace up to 200 packets
a second until then. Modes nftables and iptables can, the latter on iptables-nft; rules of iptables-legacy
are not seen. It needs Linux 5.12.`,
		Example: `  pointsman explain 10.244.1.7 10.96.0.10:80
  pointsman explain node 10.96.0.10:53/udp
  pointsman explain --try outside:198.51.100.7 192.0.2.10:30080
  pointsman explain --watch --for 1m`,

		ValidArgsFunction: eachWord(completeCallers, completeFrontends),
	}
	var try, watch bool
	var during time.Duration
	c.Flags().BoolVar(&try, "try", false, "open one connection to each endpoint that may answer (TCP), and say what came back")
	c.Flags().BoolVar(&watch, "watch", false, "print what becomes of packets while they come; SRC and DST may be left out")
	c.Flags().DurationVar(&during, "for", 30*time.Second, "how long to watch, up to 10m")
	out := addFormat(c)
	both := words(2, 2, "SRC and DST:PORT")
	c.Args = func(c *cobra.Command, args []string) error {
		if watch && len(args) == 0 {
			return nil
		}
		return both(c, args)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if watch && len(args) == 0 {
			args = []string{"", ""}
		} else if _, err := admin.ParseQuestion(args[0], args[1]); err != nil {
			return usageError{err}
		}
		if watch && (*out != "table" || try) {
			return usageError{errors.New("--watch prints lines, and connects to nothing: leave out -o and --try")}
		}
		if watch {
			return watchPackets(c, args[0], args[1], during)
		}
		x, err := client(c).Explain(c.Context(), args[0], args[1], try)
		if err == nil {
			err = out.print(c.OutOrStdout(), x, func(w io.Writer) { writeExplanation(w, x) })
		}
		if err == nil && x.Verdict == admin.VerdictCannotTell {
			err = errDegraded
		}
		return err
	}
	return c
}

// watchPackets prints what becomes of packets.
func watchPackets(c *cobra.Command, from, to string, during time.Duration) error {
	if during <= 0 || during > 10*time.Minute {
		return usageError{fmt.Errorf("--for: want a time up to 10m, not %s", during)}
	}
	ctx, stop := untilInterrupt(c.Context())
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	fmt.Fprintf(c.ErrOrStderr(), "watching for %s\n", during)
	n := 0
	err := client(c).Watch(ctx, from, to, func(w admin.Watched) {
		n++
		fmt.Fprintln(c.OutOrStdout(), watchedLine(w))
	})
	if err == nil && n == 0 {
		what := "no packet came that a rule dropped or rejected"
		if to != "" {
			what = "no such packet came to the rules"
		}
		fmt.Fprintf(c.ErrOrStderr(), "%s; what filters packets before or without nf_tables is not seen: XDP, traffic control, routes, iptables-legacy\n", what)
	}
	return err
}

// watchedLine returns what became of a packet: "15:04:05.000 drop udp 10.0.0.1:7 > 10.0.0.2:53, shop/web:dns/udp4: why; the rule".
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
		fmt.Fprintf(w, "%s\t%s\n", s.Question, s.Answer)
	}
	fmt.Fprintf(w, "verdict\t%s\n", x.Verdict)
	if x.State != "" {
		fmt.Fprintf(w, "state\t%s%s\n", x.State, because(x.Why))
	}
	if p := x.Programmed; p != nil {
		fmt.Fprintf(w, "served now\t%s\n", phrase.Some(p.Endpoints))
		writeItems(w, "differs", "", nonempty(p.Differs))
	}
	if x.Unread != "" {
		fmt.Fprintf(w, "served now\tnot known: %s\n", x.Unread)
	}
	k := cmp.Or(x.Kernel, &admin.Traced{})
	if x.Untraced != "" {
		fmt.Fprintf(w, "kernel now\tnot known: %s\n", x.Untraced)
	} else if x.Kernel != nil {
		fmt.Fprintf(w, "kernel now\t%s\n", phrase.Some(waysOf(k.Ways)))
	}
	writeItems(w, "differs", "", nonempty(k.Differs))
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

func nonempty(s string) []string {
	return slices.DeleteFunc([]string{s}, func(s string) bool { return s == "" })
}

// waysOf returns ways in words, each once: "forward to 10.0.0.1:80".
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
