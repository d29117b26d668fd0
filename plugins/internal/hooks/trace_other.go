// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hooks

import (
	"context"
	"errors"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/trace"
	"github.com/pointsman/pointsman/sdk"
)

// Trace says what becomes of a packet here at this moment.
func Trace(context.Context, sdk.Packet) (sdk.Traced, error) {
	return sdk.Traced{}, errors.ErrUnsupported
}

// TraceWith is Trace, and says which virtual services of IPVS are another program's.
func TraceWith(context.Context, sdk.Packet, func(Server) bool) (sdk.Traced, error) {
	return sdk.Traced{}, errors.ErrUnsupported
}

// A Kernel is what packets of one IP family come through here. Systems other than Linux have none that is known.
type Kernel struct{}

// Now reads what packets of a family come through now.
func Now(context.Context, sdk.Family) (*Kernel, error) { return nil, errors.ErrUnsupported }

// Ends are where a packet may end that begins with a mark.
func (*Kernel) Ends(sdk.Packet, uint32) ([]End, error) { return nil, errors.ErrUnsupported }

// Own reports whether an address is one of the node's.
func (*Kernel) Own(netip.Addr) bool { return false }

// Takes reports whether a socket of the node takes what is sent to an address of it.
func (*Kernel) Takes(sdk.Protocol, netip.AddrPort) (bool, error) { return false, errors.ErrUnsupported }

func hasSocket(trace.Packet, bool) (bool, error) { return false, errors.ErrUnsupported }

func marksBy(context.Context) func(set, parts string, p trace.Packet) ([2]uint32, bool, error) {
	return nil
}

func member(string, string, trace.Packet) (bool, error) { return false, errors.ErrUnsupported }
