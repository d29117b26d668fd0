// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A tracing dataplane can follow a packet.
type tracing struct{ *Recorder }

func (tracing) Trace(context.Context, sdk.Packet) (sdk.Traced, error) { return sdk.Traced{}, nil }

// TestTraceOfOneThatHasEnded: packets are sent also when the process is gone, and it is not asked then.
func TestTraceOfOneThatHasEnded(t *testing.T) {
	dp := tracing{new(Recorder)}
	remote, err := wire.Local(t.Context(), sdk.Description{Name: "tracing", Version: "1"}, dp)
	if err != nil {
		t.Fatal(err)
	}
	p := Packet{Protocol: sdk.TCP, From: sdk.Caller{Addr: netip.MustParseAddr("127.0.0.9")}, To: netip.MustParseAddrPort("127.0.0.1:80")}
	tr := &trial{ctx: t.Context(), dp: remote}
	if traced, err := tr.trace(p, nil); traced == nil || err != nil {
		t.Errorf("while it runs: %v, %v", traced, err)
	}
	stopLocal(remote)
	if traced, err := tr.trace(p, nil); traced != nil || err != nil {
		t.Errorf("when it has ended: %v, %v", traced, err)
	}
}
