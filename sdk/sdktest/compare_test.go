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

// An unsure dataplane cannot say what becomes of a packet.
type unsure struct{ *Recorder }

func (unsure) Trace(context.Context, sdk.Packet) (sdk.Traced, error) {
	return sdk.Traced{CannotTell: "a rule of another program"}, nil
}

// TestTraceAmongOthersRules: where other programs' rules are too, a dataplane need not know them.
func TestTraceAmongOthersRules(t *testing.T) {
	p := Packet{Protocol: sdk.TCP, From: sdk.Caller{Addr: netip.MustParseAddr("127.0.0.9")}, To: netip.MustParseAddrPort("127.0.0.1:80")}
	tr := &trial{ctx: t.Context(), dp: unsure{new(Recorder)}}
	if _, err := tr.trace(p, nil); err == nil {
		t.Error("it may not know the rules of a testbed of its own")
	}
	tr.subject.Testbed = Loopback()
	if traced, err := tr.trace(p, nil); traced != nil || err != nil {
		t.Errorf("on the machine's own network: %v, %v", traced, err)
	}
}
