// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// fakeLinks implements linker with the fake's addresses.
type fakeLinks struct{ *fake }

func (f fakeLinks) Addrs() (addresses, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return addresses{device: f.device, ours: slices.Collect(maps.Keys(f.ours)), others: slices.Collect(maps.Keys(f.others))}, nil
}

func (f fakeLinks) RemoveDevice() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.device = false
	clear(f.ours)
	return f.request("remove %s", device)
}

func (f fakeLinks) Bind(a netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.device {
		f.device = true
		if err := f.request("make %s", device); err != nil {
			return err
		}
	}
	f.ours[a] = true
	return f.request("bind %s", a)
}

func (f fakeLinks) Unbind(a netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.ours, a)
	return f.request("unbind %s", a)
}

func (f fakeLinks) Subscribe(chan<- struct{}) {}
func (f fakeLinks) Unsubscribe()              {}

func (f fakeLinks) Changes() addrChanges {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.changes
	f.changes = addrChanges{}
	return h
}

// fakeRules implements iptables.Tool for the fake's rules of one family.
type fakeRules struct {
	*fake
	family sdk.Family
}

// tool returns the Tool that reads and writes the fake's rules of a family.
func (f *fake) tool(of sdk.Family) iptables.Tool {
	return iptables.Tool{Family: of, Backend: "fake", Prefix: "iptables of " + of.String(), Kernel: fakeRules{f, of}}
}

func (f fakeRules) Save(ctx context.Context, names ...string) (iptables.Tables, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	all := make(iptables.Tables)
	for id, rules := range f.tables[f.family] {
		if len(names) == 0 || slices.Contains(names, id.Table) {
			all[id] = slices.Clone(rules)
		}
	}
	return all, ctx.Err()
}

func (f fakeRules) Restore(ctx context.Context, s *iptables.Script) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := f.request("rules:\n%s", s); err != nil {
		return err
	}
	table := ""
	t := f.tables[f.family]
	for line := range strings.Lines(s.String()) {
		line = strings.TrimSpace(line)
		verb, rest, _ := strings.Cut(line, " ")
		chain, rule, _ := strings.Cut(rest, " ")
		id := iptables.ID{Table: table, Chain: chain}
		switch {
		case line[0] == '*':
			table = line[1:]
		case line[0] == ':':
			t[iptables.ID{Table: table, Chain: verb[1:]}] = nil
		case verb == "-A":
			t[id] = append(t[id], iptables.Rule(rule))
		case verb == "-I":
			t[id] = slices.Insert(t[id], 0, iptables.Rule(rule))
		case verb == "-D":
			i := slices.Index(t[id], iptables.Rule(rule))
			if i < 0 {
				return fmt.Errorf("no rule %q in %s", rule, id)
			}
			t[id] = slices.Delete(t[id], i, i+1)
		case verb == "-X":
			delete(t, id)
		}
	}
	return nil
}

func (f *fake) forget(of sdk.Family, s conntrack.Served) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale[of] = s
	return f.stales, nil
}
