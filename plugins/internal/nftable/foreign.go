// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// accept is what helps.
const accept = `packets to Services pass if "ct status dnat accept" stands before that`

// Drops are the chains of other tables than ours that drop packets to Services, a sentence each. What
// one chain drops no other can accept. Of those of iptables-legacy, which are not in nf_tables, it has
// the policies.
func (t *Table[P]) Drops(ctx context.Context) (all []string, err error) {
	conn, done, err := t.Reader()
	if err != nil {
		return nil, err
	}
	defer done()
	for of, word := range map[nftnl.Family]string{nftnl.Inet: "inet", t.nft(): Word(t.Of)} {
		chains, err := conn.BaseChains(ctx, of)
		if err != nil {
			return nil, err
		}
		for _, c := range chains {
			own := of != nftnl.Inet && c.Table == t.Name
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
	return append(all, legacyDrops(t.Of, t.Log)...), nil
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

// legacyDrops are the chains of iptables-legacy that drop, a sentence each.
func legacyDrops(f sdk.Family, log *slog.Logger) (all []string) {
	chains, err := iptables.LegacyDrops(f)
	if err != nil {
		log.Debug("cannot read the tables of iptables-legacy", "family", f, "err", err)
	}
	for _, chain := range chains {
		if chain != "OUTPUT" {
			all = append(all, fmt.Sprintf("chain %s of iptables-legacy (%s) has the policy to drop; packets to Services pass where a rule in it accepts them", chain, f))
		}
	}
	return all
}
