// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Count tells how many connections Services have had: each is a packet that a DNAT rule matched, since the
// table nat sees the first of a connection alone. Of bytes the rules know nothing.
func (p *plugin) Count(ctx context.Context, tell func(sdk.Traffic) error) error {
	tools := p.tools()
	if len(tools) == 0 {
		return errors.New("nothing to count yet: call Configure first")
	}
	parts := make(map[sdk.Name]map[string]frame.Count)
	for _, tool := range tools {
		w := readCounts{chains: make(map[string]*readChain)}
		if err := tool.Counters(ctx, "nat", w.rule); err != nil {
			return err
		}
		w.add(parts, tool.Family)
	}
	return p.counts.Tell(parts, false, tell)
}

// readCounts is what was read of the chains in which endpoints are chosen.
type readCounts struct{ chains map[string]*readChain }

// A readChain is one of them.
type readChain struct {
	label    string // its Service's, as the first rule of a list of endpoints has it; empty: it is of another list
	from     string // the chain that leads to it
	protocol sdk.Protocol
	packets  uint64 // that were sent to an endpoint
}

func (w readCounts) at(chain string) *readChain {
	if w.chains[chain] == nil {
		w.chains[chain] = new(readChain)
	}
	return w.chains[chain]
}

// rule notes what a rule of the table nat says.
func (w readCounts) rule(chain string, rule iptables.Rule, packets uint64) {
	if !isEndpoints(chain) && !strings.HasPrefix(chain, "KUBE-SEP-") {
		return
	}
	at, target := w.at(chain), rule.Target()
	if at.label == "" && isEndpoints(chain) {
		at.label, _, _ = strings.Cut(rule.Comment(), " ")
	}
	switch {
	case target == "DNAT":
		at.packets += packets
		at.protocol = protocolIn(rule)
	case isEndpoints(target), strings.HasPrefix(target, "KUBE-SEP-"):
		w.at(strings.Clone(target)).from = chain
	}
}

// isEndpoints reports whether a chain chooses among endpoints, or a part of them.
func isEndpoints(chain string) bool {
	return strings.HasPrefix(chain, "KUBE-SVC-") || strings.HasPrefix(chain, "KUBE-SVL-")
}

// protocolIn is the one that a rule is for.
func protocolIn(rule iptables.Rule) sdk.Protocol {
	before := ""
	for word := range rule.All() {
		if before == "-p" {
			return iptables.ProtocolCalled(word)
		}
		before = word
	}
	return 0
}

// add adds to each Service the chains that send to its endpoints.
func (w readCounts) add(parts map[sdk.Name]map[string]frame.Count, family sdk.Family) {
	for chain, at := range w.chains {
		if at.protocol == 0 {
			continue
		}
		of := at
		for range 3 { // a list, a part of it, an endpoint
			if of.label != "" || w.chains[of.from] == nil {
				break
			}
			of = w.chains[of.from]
		}
		if of.label == "" {
			continue
		}
		name := iptables.Labelled(of.label)
		name.Protocol, name.Family = at.protocol, family
		if parts[name] == nil {
			parts[name] = make(map[string]frame.Count)
		}
		parts[name][chain] = frame.Count{Connections: at.packets}
	}
}
