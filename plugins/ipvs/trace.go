// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"syscall"

	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Trace says what becomes of a packet now, by everything that the kernel has. It runs beside other
// calls, so it opens a way of its own to the kernel, and loads no module.
func (p *plugin) Trace(ctx context.Context, packet sdk.Packet) (sdk.Traced, error) {
	k, err := p.machine.reach(ctx)
	if err != nil {
		return sdk.Traced{}, err
	}
	defer k.close()
	family := sdk.FamilyOf(packet.To.Addr())
	return p.machine.trace(ctx, packet, func(s hooks.Server) bool {
		return k.foreign(serviceKey{family: family, protocol: iptables.ProtocolCalled(s.Protocol), addr: s.At, mark: s.Mark})
	})
}

// foreign reports whether no set of ours names a virtual service, nor its address. Where the sets cannot
// be asked it is not said.
func (k kernel) foreign(at serviceKey) bool {
	switch {
	case k.setKeeper == nil:
		return false
	case at.mark != 0:
		return at.mark&tagMask != tagOne && at.mark&tagMask != tagOther
	}
	all, local := nodePortSets(at.protocol)
	for _, s := range append([]set{bound, all, local}, registers[:5]...) {
		e := entry{set: s, family: at.family}
		switch sets[s].form {
		case formPort:
			e.port = at.addr.Port()
		case formAddr:
			e.addr = at.addr.Addr()
		default:
			e.addr, e.protocol, e.port = at.addr.Addr(), at.protocol, at.addr.Port()
		}
		has, err := k.Has(e)
		if has || err != nil && !errors.Is(err, syscall.ENOENT) {
			return false
		}
	}
	return true
}
