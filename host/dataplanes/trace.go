// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// trace adds what the kernel would do now with the packet, as the dataplane that serves reads it. One
// packet is traced at a time, so that questions cannot keep the node busy.
func (set *Set) trace(ctx context.Context, x *explanation, m track.Match) {
	ctx, cancel := context.WithTimeout(ctx, readBack)
	defer cancel()
	select {
	case set.tracing <- struct{}{}:
		defer func() { <-set.tracing }()
	case <-ctx.Done():
		x.Untraced = "other packets are being traced; ask again"
		return
	}
	main := set.serving()
	remote := main.remote()
	if remote == nil {
		x.Untraced = errNoProcess.Error()
		return
	}
	from, _, _ := x.caller(m)
	if !from.Addr.IsValid() {
		x.Untraced = fmt.Sprintf("this node has no %s address to send from", sdk.FamilyOf(x.To.Addr()))
		return
	}
	traced, err := remote.Trace(ctx, sdk.Packet{
		Protocol: protocols[x.Protocol], From: netip.AddrPortFrom(from.Addr, 0), To: x.To, Origin: from.From,
	})
	switch {
	case errors.Is(err, wire.ErrUnsupported):
		x.Untraced = fmt.Sprintf("%s cannot trace packets", main.name)
	case err != nil:
		x.Untraced = err.Error()
	default:
		x.Kernel = tracedAs(traced)
		x.Kernel.Differs = x.differs(traced)
	}
}

func tracedAs(t sdk.Traced) *admin.Traced {
	out := &admin.Traced{Ways: []admin.Way{}, CannotTell: t.CannotTell}
	for _, w := range t.Ways {
		out.Ways = append(out.Ways, admin.Way{Verdict: w.Verdict.String(), To: w.To.String(), Share: w.Share, Masquerade: w.Masquerade, Rules: w.Rules})
	}
	return out
}

// differs says where the kernel would do something else than the packet should come to; empty: it
// would not, or that is not known.
func (x *explanation) differs(t sdk.Traced) string {
	if t.CannotTell != "" || x.Verdict == admin.VerdictCannotTell {
		return ""
	}
	for _, w := range t.Ways {
		switch {
		case x.Verdict == admin.VerdictPass && w.Verdict == sdk.Forward && w.To == x.To:
		case x.Verdict == admin.VerdictPass && w.Verdict == sdk.Forward:
			return fmt.Sprintf("it is sent to %s, as if a Service were there", w.To)
		case x.Verdict == admin.VerdictPass:
			return fmt.Sprintf("it is turned away (%s)", w.Verdict)
		case w.Verdict.String() != x.Verdict && w.Verdict == sdk.Forward && w.To == x.To:
			return "no rule takes it, so that it goes on as it was sent"
		case w.Verdict.String() != x.Verdict:
			return fmt.Sprintf("it would come to %s, not %s", w.Verdict, x.Verdict)
		case w.Verdict == sdk.Forward && w.To == x.To && !x.to(x.To):
			return "no rule takes it, so that it goes on as it was sent"
		case w.Verdict == sdk.Forward && !x.to(w.To):
			return fmt.Sprintf("it may be sent to %s, which is none of its endpoints", w.To)
		}
	}
	return ""
}

// to reports whether the packet may be sent to an endpoint at addr.
func (x *explanation) to(addr netip.AddrPort) bool {
	return slices.ContainsFunc(x.Endpoints, func(s admin.Share) bool { return s.Address == addr.String() })
}

// stopped returns the rule by which the kernel turns the packet away, or some of those like it.
func (x *explanation) stopped() string {
	if x.Kernel == nil {
		return ""
	}
	for _, w := range x.Kernel.Ways {
		if n := len(w.Rules); n > 0 && w.Verdict != sdk.Forward.String() {
			return w.Rules[n-1]
		}
	}
	return ""
}
