// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// acceptHint says how to fix a chain that drops packets.
const acceptHint = `packets to Services pass if "ct status dnat accept" stands before that`

// forwardHint says how to fix iptables' FORWARD chain that drops packets.
const forwardHint = "packets to Services pass where iptables' programs are there to write " + masquerade.Forward + ", or if a rule before that accepts them"

// drops returns a sentence for each chain of another table that drops packets to Services. Every base chain at
// a hook can drop a packet that others accepted. Chains of iptables-legacy are not in nf_tables: for these
// drops reads the policies. FORWARD chains of iptables without a jump to masquerade.Forward are returned
// separately as forward.
func (k *nfTable) drops(ctx context.Context) (all, forward []string, err error) {
	conn, done, err := k.reader()
	if err != nil {
		return nil, nil, err
	}
	defer done()
	for of, word := range map[nftnl.Family]string{nftnl.Inet: "inet", k.NFT(): k.nftName()} {
		chains, err := conn.BaseChains(ctx, of)
		if err != nil {
			return nil, nil, err
		}
		for _, c := range chains {
			own := of != nftnl.Inet && c.Table == table
			packets := map[uint32]string{nftnl.Forward: "what is forwarded", nftnl.Input: "what is sent to the node"}[c.Hook.At]
			if own || packets == "" || c.Hook.Type != "filter" {
				continue
			}
			rules, err := conn.List(of, c.Table).Rules(ctx, c.Name)
			if err != nil {
				return nil, nil, err
			}
			by := dropCause(c, rules[c.Name])
			text := fmt.Sprintf("chain %s of table %s %s drops %s, by %s; ", c.Name, word, c.Table, packets, by)
			switch {
			case by == "":
			case of != nftnl.Inet && c.Table == "filter" && c.Name == "FORWARD":
				forward = append(forward, text+forwardHint)
			default:
				all = append(all, text+acceptHint)
			}
		}
	}
	chains, err := iptables.LegacyDrops(ctx, k.Family, masquerade.Forward)
	if err != nil {
		k.log.Debug("cannot read the tables of iptables-legacy", "family", k.Family, "err", err)
	}
	for _, chain := range chains {
		text := fmt.Sprintf("chain %s of iptables-legacy (%s) has the policy to drop; ", chain, k.Family)
		switch chain {
		case "INPUT":
			all = append(all, text+"packets to Services pass where a rule in it accepts them")
		case "FORWARD":
			forward = append(forward, text+forwardHint)
		}
	}
	return all, forward, nil
}

// dropCause returns what in a chain drops all packets that reach it, or "" if nothing does or if packets to
// Services are accepted before.
func dropCause(c nftnl.Observed, rules []nftnl.Observed) string {
	for i, r := range rules {
		switch {
		case r.AcceptsTranslated(), r.JumpsTo(masquerade.Forward):
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
