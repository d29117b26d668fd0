// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/phrase"
)

func explainVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain SRC DST:PORT[/PROTOCOL]",
		Short: "Say what becomes of a packet that is sent to a Service, and why",
		Long: `Explain says what becomes of the first packet of a connection on this node: to which frontend
of which Service it comes, whether it may, which endpoints it can be sent to, and what the
dataplane has there at this moment.

SRC is an address, node (a process of this node), pod:ADDRESS (a pod of this node),
outside:ADDRESS (another machine) or NAMESPACE/NAME of a pod that is behind a Service. PROTOCOL is tcp, udp or sctp.`,
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
		_, err := admin.ParseQuestion(args[0], args[1])
		if err != nil {
			return admin.Explanation{}, usageError{cmp.Or(serviceAsked(c, args[0], args[1]), err)}
		}
		return client(c).Explain(c.Context(), args[0], args[1])
	}, writeExplanation)
}

// serviceAsked says where a Service is reached whose name was given for DST; nil: it is no such name,
// or there is no host to ask.
func serviceAsked(c *cobra.Command, src, dst string) error {
	name, _, _ := strings.Cut(dst, ":")
	namespace, rest, ok := strings.Cut(name, "/")
	if _, err := netip.ParseAddr(namespace); !ok || err == nil || strings.Contains(rest, "/") {
		return nil
	}
	all, there := servicesNow(c), []string{}
	for _, s := range all {
		there = append(there, s.Namespace+"/"+s.Name)
	}
	if len(all) == 0 {
		return nil
	}
	at := slices.Index(there, name)
	if at < 0 {
		return &admin.Error{What: "no Service " + name, Why: config.DidYouMean(name, there), Try: "pointsman service list"}
	}
	for _, p := range all[at].Ports {
		for _, frontend := range p.Frontends {
			if to, ok := p.Destination(frontend); ok {
				return &admin.Error{What: dst + " is a Service", Why: "want an address at which it is reached", Try: fmt.Sprintf("pointsman explain %s %s", src, to)}
			}
		}
	}
	return &admin.Error{What: dst + " is a Service", Why: "want an address at which it is reached", Try: "pointsman service show " + name}
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
	writeTraced(w, x)
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

// writeTraced writes what the kernel would do now, and by which rules where that is not what it should.
func writeTraced(w io.Writer, x admin.Explanation) {
	k := x.Kernel
	switch {
	case k == nil && x.Untraced != "":
		fmt.Fprintf(w, "kernel now\tnot known: %s\n", x.Untraced)
	case k == nil:
	case k.CannotTell != "":
		fmt.Fprintf(w, "kernel now\tcannot tell: %s\n", k.CannotTell)
	default:
		fmt.Fprintf(w, "kernel now\t%s\n", phrase.Some(waysOf(k.Ways)))
	}
	if k == nil || k.Differs == "" {
		return
	}
	fmt.Fprintf(w, "differs\t%s\n", k.Differs)
	for _, way := range k.Ways {
		if len(way.Rules) > 0 && (way.Verdict != x.Verdict || len(k.Ways) == 1) {
			for _, rule := range way.Rules {
				fmt.Fprintf(w, "rule\t%s\n", rule)
			}
			return
		}
	}
}

// waysOf returns ways in words: "forward to 10.0.0.1:80 (50%)".
func waysOf(ways []admin.Way) []string {
	var all []string
	for _, way := range ways {
		text := way.Verdict
		if way.Verdict == "forward" {
			text += " to " + way.To
		}
		if way.Share < 0.9995 {
			text += fmt.Sprintf(" (%.3g%%)", 100*way.Share)
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}
