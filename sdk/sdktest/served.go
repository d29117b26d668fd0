// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// inspect is what the dataplane says it serves, a frontend a line.
func (t *trial) inspect() ([]string, error) {
	i, ok := t.dp.(sdk.Inspector)
	if !ok {
		return nil, wire.ErrUnsupported
	}
	var lines []string
	err := i.Inspect(t.ctx, func(s sdk.Served) error {
		lines = append(lines, servedLine(s))
		return nil
	})
	slices.Sort(lines)
	return lines, err
}

func servedLine(s sdk.Served) string {
	// Which callers are let in is asked with packets: a dataplane need not keep the ranges as told.
	f := sdk.Frontend{Kind: s.Frontend.Kind, Addr: s.Frontend.Addr, Policy: s.Frontend.Policy}
	endpoints := slices.Clone(s.Endpoints)
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	return fmt.Sprintf("%s %s = %v", s.Name, f, endpoints)
}

// wanted are the lines that services come to.
func wanted(services []sdk.Service) []string {
	var lines []string
	for _, s := range services {
		for _, f := range s.Frontends {
			served := sdk.Served{Name: s.Name, Frontend: f}
			for _, ep := range s.Endpoints(f.Policy) {
				served.Endpoints = append(served.Endpoints, ep.Addr)
			}
			lines = append(lines, servedLine(served))
		}
	}
	slices.Sort(lines)
	return lines
}

// serves expects the dataplane to serve exactly s.
func (t *trial) serves(s Scenario) { t.need(t.differs(s)) }

// differs reports how what the dataplane serves differs from s: by asking it, and where it
// cannot say, with s's packets.
func (t *trial) differs(s Scenario) error { return t.differsBy(s, t.packets) }

// differsBy is differs, where packets are sent otherwise.
func (t *trial) differsBy(s Scenario, packets func(Scenario) error) error {
	got, err := t.inspect()
	if errors.Is(err, wire.ErrUnsupported) {
		return settled(packets(s))
	}
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if want := wanted(s.Services); !slices.Equal(got, want) {
		return mismatch{want: besides(want, got), seen: besides(got, want)}
	}
	return nil
}

// besides shows the first few of these lines that the others lack.
func besides(these, others []string) string {
	const most = 5
	var lines []string
	for _, l := range these {
		if _, found := slices.BinarySearch(others, l); !found {
			lines = append(lines, l)
		}
	}
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("and %d more", len(lines)-most))
	}
	if len(lines) == 0 {
		return "nothing else"
	}
	return strings.Join(lines, "\n")
}

func limited(d sdk.Description, l sdk.Limit) bool { return slices.Contains(d.Limits, l) }

func join[S ~string](words []S) string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return strings.Join(list, ", ")
}
