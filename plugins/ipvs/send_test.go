// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// A fakeTestbed sends packets through a fake: through its rules at each hook, and through its virtual servers where the
// kernel evaluates them.
type fakeTestbed struct {
	fake *fake
	node sdk.Node
}

func (g *fakeTestbed) Place(s sdktest.Scenario) (sdktest.Scenario, []string) {
	g.node = s.Node
	g.fake.own(append(slices.Clone(s.Node.Addrs), netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback())...)
	return s, nil
}

func (f *fake) own(addrs ...netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range addrs {
		f.others[a] = true
	}
}

func (g *fakeTestbed) Open(context.Context, sdk.Dataplane, sdktest.Scenario) (sdktest.Stage, error) {
	return fakeStage{g}, nil
}

type fakeStage struct{ *fakeTestbed }

func (fakeStage) Close() error { return nil }

func (s fakeStage) Send(_ context.Context, p sdktest.Packet) (sdktest.Answer, error) {
	a, _, err := s.send(p)
	return a, err
}

func (s fakeStage) Dial(_ context.Context, p sdktest.Packet) (sdktest.Flow, error) {
	return &fakeFlow{stage: s, packet: p}, nil
}

// A fakeFlow stays with its first endpoint for as long as the kernel has the virtual server and the destination.
type fakeFlow struct {
	stage  fakeStage
	packet sdktest.Packet
	found  sdktest.Answer
	at     serviceKey
}

func (f *fakeFlow) Ask(context.Context) (a sdktest.Answer, err error) {
	if f.found.Verdict == sdk.Forward && !f.stage.fake.lost(f) {
		return f.found, nil
	}
	f.found, f.at, err = f.stage.send(f.packet)
	if err == nil && f.found.Verdict == sdk.Forward {
		f.stage.fake.open(f.at, f.found.Endpoint, 1)
	}
	return f.found, err
}

func (f *fakeFlow) Close() error {
	if f.found.Verdict == sdk.Forward {
		f.stage.fake.open(f.at, f.found.Endpoint, -1)
	}
	return nil
}

func (f *fake) open(at serviceKey, dest netip.AddrPort, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.services[at]; s != nil {
		s.conns[dest] += n
	}
}

// lost reports whether a flow's destination was removed or conntrack has deleted the flow.
func (f *fake) lost(l *fakeFlow) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.services[l.at]
	if s == nil {
		return true
	}
	if _, there := s.dests[l.found.Endpoint]; !there {
		return true
	}
	p := l.packet
	return p.Protocol == sdk.UDP && f.stale[sdk.FamilyOf(p.To.Addr())].Stale(conntrack.Flow{To: p.To, Reply: l.found.Endpoint})
}

// send returns what happens to a packet on the node, and the virtual server that it matched.
func (g *fakeTestbed) send(p sdktest.Packet) (sdktest.Answer, serviceKey, error) {
	f := g.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	of := sdk.FamilyOf(p.To.Addr())
	local := func(a netip.Addr) bool {
		return f.others[a] || f.ours[a] || a.IsLoopback() || p.From.From == sdk.OnNode && a == p.From.Addr
	}
	t := oracle.IPTables(f.tables[of])
	t.Member = func(set, parts string, p oracle.Packet) (bool, error) {
		_, in := f.member(set, parts, p)
		return in, nil
	}
	t.Mark = func(set, parts string, p oracle.Packet) ([2]uint32, error) {
		mark, _ := f.member(set, parts, p)
		return [2]uint32{mark, 0xffffffff}, nil
	}
	packet := rulestest.Packet(p, nil)
	packet.Local = local
	way := []oracle.Hook{{Table: "mangle", Chain: "OUTPUT"}, {Table: "nat", Chain: "OUTPUT"}}
	if packet.In != "" {
		way = []oracle.Hook{{Table: "mangle", Chain: "PREROUTING"}, {Table: "nat", Chain: "PREROUTING"}}
		if local(p.To.Addr()) {
			way = append(way, oracle.Hook{Table: "mangle", Chain: "INPUT"}, oracle.Hook{Table: "filter", Chain: "INPUT"})
		} else {
			way = append(way, oracle.Hook{Table: "filter", Chain: "FORWARD"})
		}
	}
	path, err := through(t, packet, way...)
	switch {
	case err != nil:
		return sdktest.Answer{}, serviceKey{}, err
	case path.Verdict == oracle.Drop:
		return sdktest.Answer{Verdict: sdk.Drop}, serviceKey{}, nil
	case path.Verdict == oracle.Reject, packet.In != "" && !local(p.To.Addr()):
		return sdktest.Answer{Verdict: sdk.Reject}, serviceKey{}, nil
	}
	at, dest := f.choose(serviceKey{family: of, protocol: p.Protocol, addr: p.To}, serviceKey{family: of, mark: path.Mark}, p.From.Addr)
	if !dest.IsValid() {
		return sdktest.Answer{Verdict: sdk.Reject}, at, nil
	}
	packet.To, packet.Mark = dest, path.Mark
	path, err = through(t, packet, oracle.Hook{Table: "nat", Chain: "POSTROUTING"})
	a := sdktest.Answer{Verdict: sdk.Forward, Endpoint: dest, Client: p.From.Addr}
	if path.Masquerade {
		a.Client = g.node.Addrs[slices.IndexFunc(g.node.Addrs, func(a netip.Addr) bool { return sdk.FamilyOf(a) == of })]
	}
	return a, at, err
}

// through evaluates the chains of several hooks for a packet until one does not accept it.
func through(t *oracle.Rules, p oracle.Packet, way ...oracle.Hook) (path oracle.Path, err error) {
	path.Mark = p.Mark
	for _, h := range way {
		p.Mark = path.Mark
		paths, err := t.At(p, h)
		if err != nil {
			return path, err
		}
		if path = paths[0]; path.Verdict != oracle.Accept {
			break
		}
	}
	return path, nil
}

// choose returns the virtual server that a packet matches (one by mark takes precedence) and the destination that it
// selects.
func (f *fake) choose(byAddr, byMark serviceKey, client netip.Addr) (serviceKey, netip.AddrPort) {
	at := byMark
	s := f.services[byMark]
	if byMark.mark == 0 || s == nil {
		at, s = byAddr, f.services[byAddr]
	}
	if s == nil || len(s.serving()) == 0 {
		return at, netip.AddrPort{}
	}
	serving := s.serving()
	if stuck := s.stuck[client]; s.scheduling.affinity > 0 && slices.Contains(serving, stuck) {
		return at, stuck
	}
	s.next++
	dest := serving[s.next%len(serving)]
	s.stuck[client] = dest
	return at, dest
}

// member looks up the fields of a packet that parts names ("dst,dst") in a set.
func (f *fake) member(set, parts string, p oracle.Packet) (uint32, bool) {
	s := f.sets[set]
	if s == nil {
		panic("a rule speaks of a set that is not there: " + set)
	}
	form, _, _ := strings.Cut(s.create, " ")
	addr := map[string]netip.AddrPort{"dst": p.To, "src": p.From}
	words := strings.Split(parts, ",")
	first := addr[words[0]]
	key := first.Addr().String()
	if len(words) > 1 {
		key += fmt.Sprintf(",%s:%d", p.Protocol, addr[words[1]].Port())
	}
	switch form {
	case "bitmap:port":
		key = fmt.Sprint(first.Port())
	case "hash:ip,port,ip":
		key += "," + addr[words[2]].Addr().String()
	case "hash:ip,port,net":
		for e := range s.entries {
			range_, _ := strings.CutPrefix(e, key+",")
			prefix, err := netip.ParsePrefix(range_)
			if err != nil {
				one, _ := netip.ParseAddr(range_)
				prefix = hostPrefix(one)
			}
			if prefix.Contains(addr[words[2]].Addr()) {
				return 0, true
			}
		}
		return 0, false
	}
	rest, in := s.entries[key]
	return readNote(" " + rest).mark, in
}
