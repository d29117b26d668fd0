// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
)

// A fakeRules has the rules of one family, and the fake tables to which they are written.
type fakeRules struct {
	*familyRules
	fake *rulestest.Fake
}

// onFake returns rules for a node, with fake tables to which nothing was written.
func onFake(t testing.TB, of sdk.Family, node sdk.Node) fakeRules {
	t.Helper()
	f := fakeRules{fake: rulestest.NewFake(nat(markMasq))}
	f.familyRules = newFamilyRules(iptables.Tool{Family: of, Backend: "fake", Kernel: f.fake})
	f.setNode(nodeOf(of, node))
	f.list(t)
	return f
}

func (f fakeRules) list(t testing.TB) sdk.Role {
	t.Helper()
	role, err := f.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return role
}

// write makes the fake tables serve pieces. It returns the last script that was written, or nil.
func (f fakeRules) write(t testing.TB, pieces map[sdk.Name]rules.Piece) *iptables.Script {
	t.Helper()
	f.SetDesired(pieces)
	f.fake.Last = nil
	if failed, err := f.Plan().Apply(t.Context()); err != nil || len(failed) > 0 {
		t.Fatal(failed, err)
	}
	return f.fake.Last
}

// tablesOf returns fake tables to which services on a node were written.
func tablesOf(t testing.TB, of sdk.Family, node sdk.Node, services []sdk.Service) fakeRules {
	t.Helper()
	f := onFake(t, of, node)
	f.write(t, piecesOf(of, node, services))
	return f
}

// ours returns our chains in the fake tables.
func (f fakeRules) ours() iptables.Tables {
	all := maps.Clone(f.fake.Tables)
	maps.DeleteFunc(all, func(id iptables.ID, _ []iptables.Rule) bool { return !isOurs(id) })
	return all
}

// tables returns all chains that the kernel would have in role Active.
func (f fakeRules) tables() iptables.Tables {
	all := f.ours()
	for _, j := range f.node.jumps(sdk.Active) {
		all[j.At] = slices.Insert(all[j.At], 0, j.Rule)
	}
	rulestest.AddShared(all, f.node.node.MasqueradeBit)
	return all
}

// blocksOf returns, for each block of a script, the chains that it declares with the rules that it appends.
func blocksOf(t testing.TB, s *iptables.Script) (all []iptables.Tables) {
	t.Helper()
	if s == nil {
		return nil
	}
	for text := range strings.SplitSeq(s.String(), "COMMIT\n") {
		var lines strings.Builder
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "-D") && !strings.HasPrefix(line, "-I") && !strings.HasPrefix(line, "-X") {
				lines.WriteString(line)
			}
		}
		block, err := iptables.Read(strings.NewReader(lines.String()))
		if err != nil {
			t.Fatal(err)
		}
		if len(block) > 0 {
			all = append(all, block)
		}
	}
	return all
}

// written returns the chains that a script writes, without those that it deletes.
func written(t testing.TB, s *iptables.Script) (all []iptables.ID) {
	t.Helper()
	for _, block := range blocksOf(t, s) {
		for id := range block {
			if !strings.Contains(s.String(), "\n-X "+id.Chain+"\n") {
				all = append(all, id)
			}
		}
	}
	return all
}
