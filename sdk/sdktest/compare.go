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

// packets sends every packet of s, which is placed and served, and compares the outcomes.
func (t *trial) packets(s Scenario) error {
	if t.subject.Testbed != nil && len(s.Packets) == 0 {
		return nil // there may be thousands of endpoints that no packet is for
	}
	stage, err := t.stage(s)
	if err != nil {
		return err
	}
	defer stage.Close()
	return t.packetsOn(stage, s)
}

// packetsOn returns packets, where endpoints answer already.
func (t *trial) packetsOn(stage Stage, s Scenario) error {
	var used []sdk.Limit
	for _, p := range s.Packets {
		text, _, _ := strings.Cut(p.Text, " = ")
		j, err := t.packet(stage, p, keepsEndpoint(s, p))
		if err != nil {
			return fmt.Errorf("scenario %s, line %d, %s: %w", s.Name, p.Line, text, err)
		}
		used = append(used, j.used...)
	}
	if len(used) > 0 {
		slices.Sort(used)
		return byLimits{slices.Compact(used)}
	}
	return nil
}

func (t *trial) stage(s Scenario) (Stage, error) {
	if t.subject.Testbed == nil {
		return nil, noPackets
	}
	stage, err := t.subject.Testbed.Open(t.ctx, t.dp, s)
	if err != nil {
		return nil, fmt.Errorf("make endpoints answer: %w", err)
	}
	return stage, nil
}

// packet sends p until every endpoint that may answer has, and some more times,
// so that one that may not is found out. A client that keeps its first
// endpoint need find no other.
func (t *trial) packet(stage Stage, p Packet, keeps bool) (comparison, error) {
	j := comparison{packet: p, limits: t.description.Limits}
	n := len(p.Want.Endpoints)
	least, most := 1+2*n, 1+40*n
	if keeps {
		n = 1
	}
	for i := 0; i < least || i < most && len(j.seen) < n; i++ {
		a, err := stage.Send(t.ctx, p)
		if err != nil {
			return j, fmt.Errorf("send: %w", err)
		}
		if err := j.take(a); err != nil {
			return j, err
		}
	}
	if len(j.seen) < min(n, len(p.Want.Endpoints)) {
		return j, mismatch{j.packet.Want.String(), fmt.Sprintf("only ever %v", j.seen)}
	}
	return j, nil
}

func keepsEndpoint(s Scenario, p Packet) bool {
	return slices.ContainsFunc(s.Services, func(svc sdk.Service) bool { return svc.Name == p.Service && svc.Affinity > 0 })
}

// A comparison compares answers with what a packet's outcome should be.
type comparison struct {
	packet Packet
	limits []sdk.Limit
	used   []sdk.Limit
	seen   []netip.AddrPort
}

func (j *comparison) take(a Answer) error {
	want := j.packet.Want
	switch {
	case want.Unserved:
		if a.Verdict == sdk.Forward {
			return mismatch{"no answer, as it is none of ours", a.String()}
		}
		return nil
	case a.Verdict == want.Verdict && want.Verdict == sdk.Forward:
		return j.forwarded(a)
	case a.Verdict == want.Verdict:
		return nil
	case want.Verdict == sdk.Drop && a.Verdict == sdk.Reject && slices.Contains(j.limits, sdk.LimitNoDrop):
		j.used = append(j.used, sdk.LimitNoDrop)
		return nil
	}
	return mismatch{want.String(), a.String()}
}

func (j *comparison) forwarded(a Answer) error {
	want, from := j.packet.Want, j.packet.From
	if !slices.Contains(want.Endpoints, a.Endpoint) {
		return mismatch{want.String(), a.String()}
	}
	if !slices.Contains(j.seen, a.Endpoint) {
		j.seen = append(j.seen, a.Endpoint)
	}
	switch {
	case from.From == sdk.OnNode: // it may be masqueraded as itself
	case want.Masquerades(a.Endpoint) && a.Client == from.Addr:
		return mismatch{fmt.Sprintf("%s to see the node", a.Endpoint), fmt.Sprintf("it saw the caller, %s", a.Client)}
	case !want.Masquerades(a.Endpoint) && a.Client != from.Addr:
		if !slices.Contains(j.limits, sdk.LimitNoClientAddress) {
			return mismatch{fmt.Sprintf("%s to see the caller, %s", a.Endpoint, from.Addr), fmt.Sprintf("it saw %s", a.Client)}
		}
		j.used = append(j.used, sdk.LimitNoClientAddress)
	}
	return nil
}

// settled takes a limit for a pass: it is not what is asked here.
func settled(err error) error {
	if _, ok := errors.AsType[byLimits](err); ok {
		return nil
	}
	return err
}

// settledOrNoTestbed is settled, for packets that only add to what was inspected.
func settledOrNoTestbed(err error) error {
	if errors.As(err, new(notRun)) {
		return nil
	}
	return settled(err)
}

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
