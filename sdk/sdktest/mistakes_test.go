// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// dataplane returns b, which is a Sender only if its answers differ from a Recorder's.
func (b *brokenRecorder) dataplane() sdk.Dataplane {
	if b.send != nil || b.forgets != nil {
		return misleading{b}
	}
	return b
}

type misleading struct{ *brokenRecorder }

func (m misleading) Send(from sdk.Caller, to netip.AddrPort, protocol sdk.Protocol) Answer {
	a := m.Recorder.Send(from, to, protocol)
	if m.send == nil {
		return a
	}
	return m.send(from, to, a)
}

func (m misleading) Forgets(to netip.AddrPort, protocol sdk.Protocol, ep netip.AddrPort) bool {
	if m.forgets == nil {
		return m.Recorder.Forgets(to, protocol, ep)
	}
	return m.forgets(to, protocol, ep)
}

func leaveStale(b *brokenRecorder) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		for _, s := range b.Services() {
			if u.Full && !slices.ContainsFunc(u.Set, func(o sdk.Service) bool { return o.Name == s.Name }) {
				u.Set = append(u.Set, s)
			}
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func takeGap(b *brokenRecorder) {
	begun := false
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		if !begun && !u.Full {
			u.Full = true
		}
		begun = true
		if !u.Full {
			u.From = b.state.Revision()
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func forgetDelete(b *brokenRecorder) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		u.Delete = nil
		return b.Recorder.Sync(ctx, u)
	}
}

func dropBad(b *brokenRecorder) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		r, err := b.Recorder.Sync(ctx, u)
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, f := range r.Failed {
			delete(b.served, f.Name)
		}
		return r, err
	}
}

func cleanNothing(b *brokenRecorder) {
	b.clean = func(ctx context.Context, l sdk.Leftovers) ([]string, error) {
		return b.Recorder.Cleanup(ctx, sdk.Leftovers{DryRun: true})
	}
}

func cleanDry(b *brokenRecorder) {
	b.clean = func(ctx context.Context, l sdk.Leftovers) ([]string, error) {
		return b.Recorder.Cleanup(ctx, sdk.Leftovers{})
	}
}

func oneRole(b *brokenRecorder) {
	b.role = func(r sdk.Role) error {
		if r == sdk.Standby {
			return &sdk.Refusal{Field: "role", Why: "no"}
		}
		return b.Recorder.SetRole(context.Background(), r)
	}
}

func showActive(b *brokenRecorder) { b.shown = sdk.Active }

func ignoreRole(b *brokenRecorder) {
	b.role = func(sdk.Role) error { return b.Recorder.SetRole(context.Background(), sdk.Active) }
}

func hideClient(b *brokenRecorder) {
	b.send = func(_ sdk.Caller, _ netip.AddrPort, a Answer) Answer { a.Client = defaultNode().Addrs[0]; return a }
}

func hideNobody(b *brokenRecorder) {
	caller := netip.MustParseAddr("192.0.2.7") // the first caller in that scenario
	b.send = func(_ sdk.Caller, _ netip.AddrPort, a Answer) Answer { a.Client = caller; return a }
}

func reject(b *brokenRecorder) {
	b.send = func(_ sdk.Caller, _ netip.AddrPort, a Answer) Answer {
		if a.Verdict == sdk.Drop {
			a.Verdict = sdk.Reject
		}
		return a
	}
}

func misroute(b *brokenRecorder) {
	b.send = func(_ sdk.Caller, _ netip.AddrPort, a Answer) Answer { a.Endpoint = addrAt(10, 99, 1, 1); return a }
}

func forgetClients(b *brokenRecorder) {
	b.send = func(_ sdk.Caller, _ netip.AddrPort, a Answer) Answer {
		b.mu.Lock()
		defer b.mu.Unlock()
		clear(b.affinity)
		return a
	}
}

func flushAgain(b *brokenRecorder) {
	b.begin = func(ctx context.Context, s sdk.Setup) (sdk.Description, error) {
		b.mu.Lock()
		clear(b.served)
		b.mu.Unlock()
		return b.Recorder.Configure(ctx, s)
	}
}

func keepState(b *brokenRecorder) {
	b.begin = func(ctx context.Context, s sdk.Setup) (sdk.Description, error) {
		state := b.state
		d, err := b.Recorder.Configure(ctx, s)
		b.state = state
		return d, err
	}
}

func drop(b *brokenRecorder) {
	b.send = func(_ sdk.Caller, _ netip.AddrPort, a Answer) Answer {
		if a.Verdict == sdk.Reject {
			a.Verdict = sdk.Drop
		}
		return a
	}
}

func rejectAll(b *brokenRecorder) {
	b.send = func(sdk.Caller, netip.AddrPort, Answer) Answer { return Answer{Verdict: sdk.Reject} }
}

func ignoreSources(b *brokenRecorder) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		for i, s := range u.Set {
			s.Frontends = slices.Clone(s.Frontends)
			for j := range s.Frontends {
				s.Frontends[j].Sources = nil
			}
			u.Set[i] = s
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func serveAll(b *brokenRecorder) {
	b.send = func(from sdk.Caller, _ netip.AddrPort, a Answer) Answer {
		return Answer{Verdict: sdk.Forward, Endpoint: addrAt(10, 99, 1, 1), Client: from.Addr}
	}
}

func hideNobodyBut(addr string) func(*brokenRecorder) {
	return func(b *brokenRecorder) {
		b.send = func(from sdk.Caller, _ netip.AddrPort, a Answer) Answer {
			if from.Addr == netip.MustParseAddr(addr) {
				a.Client = from.Addr
			}
			return a
		}
	}
}

func oneOnly(b *brokenRecorder) {
	b.send = func(_ sdk.Caller, _ netip.AddrPort, a Answer) Answer {
		if s := b.Services(); len(s) > 0 && a.Verdict == sdk.Forward {
			a.Endpoint = s[0].Cluster[0].Addr
		}
		return a
	}
}

func forgetAtOthers(b *brokenRecorder) {
	kept := map[netip.AddrPort]netip.AddrPort{}
	b.send = func(from sdk.Caller, to netip.AddrPort, a Answer) Answer {
		s := b.Services()[0]
		if _, ok := kept[to]; !ok {
			kept[to] = s.Cluster[len(kept)%len(s.Cluster)].Addr
		}
		a.Endpoint = kept[to]
		return a
	}
}

func deafYielded(b *brokenRecorder) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		if b.Role() == sdk.Yielded {
			return sdk.Result{}, nil
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func ownOnly(b *brokenRecorder) {
	b.Fail = func(s sdk.Service) error {
		if s.Name.Service == "elsewhere" {
			return &sdk.Refusal{Field: "frontends", Why: "no interface has the address"}
		}
		return nil
	}
}

func nameNothing(b *brokenRecorder) {
	b.clean = func(ctx context.Context, l sdk.Leftovers) ([]string, error) {
		_, err := b.Recorder.Cleanup(ctx, l)
		return nil, err
	}
}

func nameMore(b *brokenRecorder) {
	b.clean = func(ctx context.Context, l sdk.Leftovers) ([]string, error) {
		_, err := b.Recorder.Cleanup(ctx, l)
		return []string{"chain EVERYTHING"}, err
	}
}

// serveAtOnce serves before the first role and the first update.
func serveAtOnce(b *brokenRecorder) {
	b.send = func(from sdk.Caller, to netip.AddrPort, a Answer) Answer {
		return Answer{Verdict: sdk.Forward, Endpoint: addrAt(10, 180, 1, 8080), Client: from.Addr}
	}
}

func cutAll(b *brokenRecorder) {
	b.forgets = func(netip.AddrPort, sdk.Protocol, netip.AddrPort) bool { return true }
}

func forgetNone(b *brokenRecorder) {
	b.forgets = func(netip.AddrPort, sdk.Protocol, netip.AddrPort) bool { return false }
}

func forgetServing(b *brokenRecorder) {
	b.forgets = func(_ netip.AddrPort, _ sdk.Protocol, ep netip.AddrPort) bool {
		return !slices.ContainsFunc(b.Services()[0].Reachable(), func(e sdk.Endpoint) bool { return e.Addr == ep })
	}
}

func removeLast(b *brokenRecorder) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		before := b.Services()
		r, err := b.Recorder.Sync(ctx, u)
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, old := range before {
			if _, stays := b.served[old.Name]; stays {
				continue
			}
			for name, s := range b.served {
				if s.Frontends[0].Addr == old.Frontends[0].Addr {
					delete(b.served, name)
				}
			}
		}
		return r, err
	}
}

func takeUnknown(b *brokenRecorder) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		r, err := b.Recorder.Sync(ctx, u)
		r.Failed = nil
		return r, err
	}
}
