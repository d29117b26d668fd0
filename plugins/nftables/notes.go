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

// Report returns the progress of the present call and the notes about the node. That a chain of iptables drops what is
// forwarded counts once it was tried to lead to masquerade.Forward from there.
func (p *plugin) Report() sdk.Report {
	r := p.Dataplane.Report()
	r.Notes = slices.Concat(r.Notes, p.notes.All())
	r.Dropped = p.tally.Read(counted)
	drops, marks := p.drops.All(), p.marks.Load()
	switch {
	case marks == nil || marks.Written() == 0:
	case p.serves.Load():
		r.Degraded = drops
	default:
		r.SwapImpact = strings.Join(drops, "\n")
	}
	return r
}

// counted returns how many packets of a family were dropped, by reason.
func counted(ctx context.Context, of sdk.Family) (map[string]uint64, error) {
	conn, err := nftnl.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.List(ipOf(of).NFT(), table).Counted(ctx, reasons)
}

// The chains of other programs are looked at when one of them has changed anything, at most as
// often as lookEvery; and each minute, since of those of iptables-legacy nothing tells.
const lookEvery, lookAnyway = 3 * time.Second, time.Minute

// lookAround notes which chains of other programs drop packets to Services, if that is due.
func (f *family) lookAround(ctx context.Context) {
	since, written := time.Since(f.looked), f.marks.Written()
	if written == f.written && (since < lookEvery || !f.foreign && since < lookAnyway) {
		return
	}
	f.looked, f.written = time.Now(), written
	found, forward, err := f.kernel.drops(ctx)
	if err != nil {
		f.log.Debug("cannot read the chains of other programs", "family", f.Of, "err", err)
		return
	}
	f.foreign = false
	f.plugin.notes.Set(f.word(), found...)
	f.plugin.drops.Set(f.word(), forward...)
}
