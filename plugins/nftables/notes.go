// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// Report returns the progress of the running call and the notes about the node. Chains of iptables that drop
// forwarded packets are reported only after this process has tried to add a jump to masquerade.Forward.
func (p *plugin) Report() sdk.Report {
	r := p.Dataplane.Report()
	r.Notes = slices.Concat(r.Notes, p.notes.All())
	r.Dropped = p.tally.Read(countDropped)
	drops, marks := p.drops.All(), p.marks.Load()
	switch {
	case marks == nil || marks.Written() == 0:
	case p.isActive.Load():
		r.Degraded = drops
	default:
		r.SwapImpact = strings.Join(drops, "\n")
	}
	return r
}

// countDropped returns the number of dropped packets of a family by reason.
func countDropped(ctx context.Context, of sdk.Family) (map[string]uint64, error) {
	conn, err := nftnl.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.List(ipOf(of).NFT(), table).Counted(ctx, reasons)
}

// The chains of other programs are read again when another program has changed a table, at most every
// lookEvery, and in any case every lookAnyway, because the kernel does not report changes by iptables-legacy.
const lookEvery, lookAnyway = 3 * time.Second, time.Minute

// checkForeignChains updates the notes about chains of other programs that drop packets to Services, if a check
// is due.
func (f *family) checkForeignChains(ctx context.Context) {
	since, written := time.Since(f.chainsReadAt), f.marks.Written()
	if written == f.written && (since < lookEvery || !f.chainsChanged && since < lookAnyway) {
		return
	}
	f.chainsReadAt, f.written = time.Now(), written
	found, forward, err := f.kernel.drops(ctx)
	if err != nil {
		f.log.Debug("cannot read the chains of other programs", "family", f.Of, "err", err)
		return
	}
	f.chainsChanged = false
	f.plugin.notes.Set(f.nftName(), found...)
	f.plugin.drops.Set(f.nftName(), forward...)
}
