// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/nftable"
	"github.com/pointsman/pointsman/sdk"
)

// notes are what a report has of that name, by what they are about. The zero value has none.
type notes struct {
	mu    sync.Mutex // guards about
	about map[string][]string
}

// set says what is to be known about something, in place of what was said before.
func (n *notes) set(about string, now ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.about == nil {
		n.about = make(map[string][]string)
	}
	n.about[about] = now
}

// marks says that KUBE-MARK-MASQ is not kept, and why; nil: it is.
func (n *notes) marks(err error) {
	if err == nil {
		n.set(masquerade.Mark)
		return
	}
	n.set(masquerade.Mark, fmt.Sprintf("%s is not kept for other programs, and Services are served without: %v", masquerade.Mark, err))
}

// all are those about everything. What both families say is one.
func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(n.about))...))))
}

// Report says how far the present call is, what was observed of the node, and what the kernel
// has counted.
func (p *plugin) Report() sdk.Report {
	r := p.Dataplane.Report()
	r.Notes = p.notes.all()
	r.Samples = append(slices.Clip(r.Samples), p.counts()...)
	return r
}

// The chains of other programs are looked at when one of them has changed anything, at most as
// often as lookEvery; and each minute, since of those of iptables-legacy nothing tells.
const lookEvery, lookAnyway = 3 * time.Second, time.Minute

// lookAround notes which chains of other programs drop packets to Services, if that is due.
func (f *family) lookAround(ctx context.Context) {
	since := time.Since(f.looked)
	if since < lookEvery || !f.foreign && since < lookAnyway {
		return
	}
	f.looked = time.Now()
	conn, done, err := f.Reader()
	if err != nil {
		return // every other reading says so
	}
	defer done()
	found, err := nftable.Drops(ctx, conn, f.Family, table)
	if err != nil {
		f.log.Debug("cannot read the chains of other programs", "family", f.Family, "err", err)
		return
	}
	f.foreign = false
	f.notes.set(nftable.Word(f.Family), append(found, f.legacyDrops()...)...)
}

// legacyDrops are the chains of iptables-legacy that drop, a sentence each.
func (f *family) legacyDrops() (all []string) {
	chains, err := iptables.LegacyDrops(f.Family)
	if err != nil {
		f.log.Debug("cannot read the tables of iptables-legacy", "family", f.Family, "err", err)
	}
	for _, chain := range chains {
		if chain != "OUTPUT" {
			all = append(all, fmt.Sprintf("chain %s of iptables-legacy (%s) has the policy to drop; packets to Services pass where a rule in it accepts them", chain, f.Family))
		}
	}
	return all
}
