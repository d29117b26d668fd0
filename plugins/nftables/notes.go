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
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
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
	conn, done, err := f.reader()
	if err != nil {
		return // every other reading says so
	}
	defer done()
	found, err := drops(ctx, conn, f.ip)
	if err != nil {
		f.log.Debug("cannot read the chains of other programs", "family", f.Family, "err", err)
		return
	}
	f.foreign = false
	f.notes.set(f.word(), append(found, f.legacyDrops()...)...)
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

// accept is what helps.
const accept = `packets to Services pass if "ct status dnat accept" stands before that`

// drops are the chains of other programs that drop packets to Services, a sentence each. What one
// chain drops no other can accept. Those of iptables-legacy are not in nf_tables.
func drops(ctx context.Context, conn *nftnl.Conn, f ip) (all []string, err error) {
	for of, word := range map[nftnl.Family]string{nftnl.Inet: "inet", f.nft(): f.word()} {
		chains, err := conn.BaseChains(ctx, of)
		if err != nil {
			return nil, err
		}
		for _, c := range chains {
			own := of != nftnl.Inet && c.Table == table
			packets := map[uint32]string{nftnl.Forward: "what is forwarded", nftnl.Input: "what is sent to the node"}[c.Hook.At]
			if own || packets == "" || c.Hook.Type != "filter" {
				continue
			}
			rules, err := conn.List(of, c.Table).Rules(ctx, c.Name)
			if err != nil {
				return nil, err
			}
			if by := dropsBy(c, rules[c.Name]); by != "" {
				at := fmt.Sprintf("chain %s of table %s %s", c.Name, word, c.Table)
				all = append(all, fmt.Sprintf("%s drops %s, by %s; %s", at, packets, by, accept))
			}
		}
	}
	return all, nil
}

// dropsBy is what in a chain drops every packet that comes so far; empty: nothing, or packets to
// Services were accepted before.
func dropsBy(c nftnl.Observed, rules []nftnl.Observed) string {
	for i, r := range rules {
		switch {
		case r.AcceptsTranslated():
			return ""
		case r.Refuses():
			return fmt.Sprintf("rule %d (handle %d)", i+1, r.Handle)
		}
	}
	if c.Drops {
		return "its policy"
	}
	return ""
}
