// SPDX-License-Identifier: Apache-2.0

package rulestest

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// Packet returns a packet of a scenario as the oracle sees it on a node with these addresses. A caller on the
// node has no interface.
func Packet(p sdktest.Packet, addrs []netip.Addr) oracle.Packet {
	in := cmp.Or(p.Interface, "eth0")
	if p.From.From == sdk.OnNode {
		in = ""
	}
	return oracle.Packet{
		Protocol: p.Protocol.String(), From: netip.AddrPortFrom(p.From.Addr, 40000), To: p.To, In: in,
		Local: func(a netip.Addr) bool {
			return slices.Contains(addrs, a) || a.IsLoopback() || p.From.From == sdk.OnNode && a == p.From.Addr
		},
	}
}

// Outcome returns what becomes of a packet by the paths that the oracle found. It fails the test unless all paths
// have the same chance. want says whether a single endpoint is masqueraded for another reason than a hairpin.
func Outcome(t testing.TB, paths []oracle.Path, want sdktest.Outcome) (o sdktest.Outcome) {
	t.Helper()
	for _, path := range paths {
		switch {
		case path.Verdict == oracle.Reject:
			o.Verdict = sdk.Reject
		case path.Verdict == oracle.Drop:
			o.Verdict = sdk.Drop
		case !path.Translated:
			o.Unserved = true
		default:
			o.Verdict = sdk.Forward
			o.Endpoints = append(o.Endpoints, path.To)
			if path.Masquerade {
				o.Hairpin = append(o.Hairpin, path.To)
			}
		}
		if even := 1 / float64(len(paths)); math.Abs(path.Chance-even) > 1e-6 {
			t.Errorf("the probability of %+v is %f, want %f", path, path.Chance, even)
		}
	}
	if len(o.Hairpin) == len(paths) && (len(paths) > 1 || want.Masquerade) {
		o.Masquerade, o.Hairpin = true, nil
	}
	slices.SortFunc(o.Endpoints, netip.AddrPort.Compare)
	slices.SortFunc(o.Hairpin, netip.AddrPort.Compare)
	return o
}
