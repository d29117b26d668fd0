// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"errors"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/trace"
	"github.com/pointsman/pointsman/sdk"
)

// An End is where a packet may end, for a dataplane that goes on from there.
type End struct {
	sdk.Way
	Local bool   // it is delivered to the node itself
	In    string // the interface by which it came in; empty: a process of the node sent it elsewhere
	Chain string // of nat, whose rule translated it; empty: none did

	// Unsent: there is no route for it, so that no socket can be connected there. Stopped: it is dropped or rejected
	// in OUTPUT or POSTROUTING, so that sending it is an error.
	Unsent, Stopped bool
}

// endsOf are where flows end.
func endsOf(flows []flow) (all []End) {
	for _, f := range flows {
		failed := !f.accepted()
		all = append(all, End{
			Way: sdk.Way{
				Verdict: verdicts[f.verdict], To: f.Destination(), Share: f.share, Masquerade: f.masquerade && !failed, Rules: f.rules,
			},
			Local: f.local && !failed, In: f.In, Chain: f.moved,
			Unsent:  failed && f.hook == 0,
			Stopped: failed && (f.hook == nftnl.Output+1 || f.hook == nftnl.PostRouting+1),
		})
	}
	return all
}

// ends is a packet that is not sent at all.
func (r route) ends(p trace.Packet) flow {
	f := flow{Packet: p, verdict: r.verdict, share: 1}
	f.decided(r.why)
	return f
}

// Unclear names what an error says is not understood; empty: it is none of that kind.
func Unclear(err error) string {
	var unclear *unknown
	if errors.As(err, &unclear) {
		return unclear.why
	}
	return ""
}
