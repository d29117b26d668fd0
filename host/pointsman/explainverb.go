// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

func explainVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain SRC DST:PORT[/PROTOCOL]",
		Short: "Say what becomes of a packet that is sent to a Service, and why",
		Long: `Explain says what becomes of the first packet of a connection on this node: to which frontend
of which Service it comes, whether it may, which endpoints it can be sent to, and what the
dataplane has there at this moment.

SRC is an address, node (a process of this node), pod:ADDRESS (a pod of this node) or
outside:ADDRESS (another machine). PROTOCOL is tcp, udp or sctp.`,
		Example: `  pointsman explain 10.244.1.7 10.96.0.10:80
  pointsman explain node 10.96.0.10:53/udp
  pointsman explain outside:198.51.100.7 192.0.2.10:30080`,
		Args: words(2, 3, "SRC and DST:PORT"),

		ValidArgsFunction: eachWord(completeCallers, completeFrontends),
	}
	return asking(c, func(c *cobra.Command, args []string) (admin.Explanation, error) {
		if len(args) == 3 && slices.Contains([]string{"→", "to"}, args[1]) {
			args = slices.Delete(args, 1, 2)
		}
		if len(args) == 3 {
			return admin.Explanation{}, usageError{fmt.Errorf("%s: want SRC and DST:PORT; try: %s --help", c.CommandPath(), c.CommandPath())}
		}
		if _, err := admin.ParseQuestion(args[0], args[1]); err != nil {
			return admin.Explanation{}, usageError{err}
		}
		return client(c).Explain(c.Context(), args[0], args[1])
	}, writeExplanation)
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
		if p.Differs != "" {
			fmt.Fprintf(w, "differs\t%s\n", p.Differs)
		}
	}
	if x.Unread != "" {
		fmt.Fprintf(w, "served now\tnot known: %s\n", x.Unread)
	}
	for _, r := range x.Remedies {
		fmt.Fprintf(w, "try\t%s\n", r)
	}
	if len(x.Endpoints) > 0 {
		fmt.Fprintln(w, "\nENDPOINT\tSHARE\tSEES")
		for _, e := range x.Endpoints {
			sees := "the caller"
			if e.Masquerade {
				sees = "this node"
			}
			fmt.Fprintf(w, "%s\t%.3g%%\t%s\n", e.Address, 100*e.Share, sees)
		}
	}
	if len(x.Unused) > 0 {
		fmt.Fprintln(w, "\nNOT USED\tWHY")
		for _, e := range x.Unused {
			fmt.Fprintf(w, "%s\t%s\n", e.Address, e.Why)
		}
	}
}
