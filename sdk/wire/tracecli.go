// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// A tracedWay is one of the ways of a packet as programs read it.
type tracedWay struct {
	Verdict    string   `json:"verdict"` // forward, reject, drop
	To         string   `json:"to"`      // where it goes, after translation
	Share      float64  `json:"share"`
	Masquerade bool     `json:"masquerade"`
	Rules      []string `json:"rules,omitempty"`
}

// A traced is the answer of trace as programs read it.
type traced struct {
	Ways       []tracedWay `json:"ways"`
	CannotTell string      `json:"cannotTell,omitempty"`
}

// packetFlags has the flags of trace fill in p.
func packetFlags(f *flag.FlagSet, p *sdk.Packet) {
	p.Protocol, p.Origin = sdk.TCP, sdk.Elsewhere
	f.Func("from", "", func(s string) error {
		addr, err := netip.ParseAddr(s)
		p.From = netip.AddrPortFrom(addr.Unmap(), 0)
		return err
	})
	f.Func("to", "", func(s string) (err error) {
		p.To, err = netip.ParseAddrPort(s)
		p.To = netip.AddrPortFrom(p.To.Addr().Unmap(), p.To.Port())
		return err
	})
	f.Func("protocol", "", func(s string) error { return oneOf(&p.Protocol, s, "tcp, udp or sctp", sdk.TCP, sdk.UDP, sdk.SCTP) })
	f.Func("origin", "", func(s string) error {
		origin, known := map[string]sdk.Origin{"node": sdk.OnNode, "pod": sdk.OnPod, "outside": sdk.Elsewhere}[s]
		if p.Origin = origin; !known {
			return errors.New("want node, pod or outside")
		}
		return nil
	})
	f.StringVar(&p.In, "in", "", "")
}

// oneOf has into be the one of all that s names.
func oneOf[T fmt.Stringer](into *T, s, want string, all ...T) error {
	for _, v := range all {
		if v.String() == s {
			*into = v
			return nil
		}
	}
	return fmt.Errorf("want %s", want)
}

// trace says what the kernel would do now with a packet. No session is begun for it.
func (c cli) trace(ctx context.Context, args []string) error {
	var p sdk.Packet
	asJSON, err := c.outputFlags("trace", args, func(f *flag.FlagSet) { packetFlags(f, &p) })
	if err != nil {
		return err
	}
	if !p.From.Addr().IsValid() || !p.To.IsValid() || p.From.Addr().Is4() != p.To.Addr().Is4() {
		return usageError(fmt.Sprintf("%s trace: want --from ADDRESS and --to ADDRESS:PORT of one IP family; try: %[1]s --help", c.binary()))
	}
	tracer, ok := c.dataplane.(sdk.Tracer)
	if !ok {
		return usageError(c.binary() + " cannot trace packets")
	}
	found, err := tracer.Trace(ctx, p)
	if err != nil {
		return err
	}
	answer := traced{Ways: []tracedWay{}, CannotTell: found.CannotTell}
	for _, w := range found.Ways {
		answer.Ways = append(answer.Ways, tracedWay{w.Verdict.String(), w.To.String(), w.Share, w.Masquerade, w.Rules})
	}
	if asJSON {
		return c.printJSON(answer)
	}
	c.printTraced(answer)
	return nil
}

func (c cli) printTraced(t traced) {
	if t.CannotTell != "" {
		fmt.Fprintln(c.stdout, "cannot tell:", t.CannotTell)
	}
	for _, w := range t.Ways {
		sees := map[bool]string{true: "this node", false: "the caller"}[w.Masquerade]
		fmt.Fprintf(c.stdout, "%s %s (%.3g%%), which sees %s\n", w.Verdict, w.To, 100*cmp.Or(w.Share, 1), sees)
		for _, rule := range w.Rules {
			fmt.Fprintln(c.stdout, "  by", rule)
		}
	}
}
