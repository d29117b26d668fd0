// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
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
	return (&rulestest.Fake{Tables: f.tables[f.family]}).Save(ctx, names...)
}

func (f fakeRules) Restore(ctx context.Context, s *iptables.Script) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.request("rules:\n%s", s); err != nil {
		return err
	}
	k := rulestest.Fake{Tables: f.tables[f.family]}
	err := k.Restore(ctx, s)
	f.tables[f.family] = k.Tables
	return err
}

func (f *fake) forget(of sdk.Family, s conntrack.Served) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale[of] = s
	return 0, nil
}
