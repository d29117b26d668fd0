// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// TestRecorderConforms over the wire, as a plugin does.
func TestRecorderConforms(t *testing.T) {
	Conform(Testing(t), Recorded(func() *Recorder { return new(Recorder) }))
}

// TestBareRecorderConforms without Serve's help.
func TestBareRecorderConforms(t *testing.T) {
	Conform(Testing(t), bare(func(r *Recorder) sdk.Dataplane { return r }))
}

// bare is a subject that is called directly, and may break what it is given.
func bare(breaks func(*Recorder) sdk.Dataplane) Subject {
	var mu sync.Mutex // guards live
	var live *Recorder
	return Subject{
		Start: func(context.Context, string) (sdk.Dataplane, error) {
			mu.Lock()
			defer mu.Unlock()
			live = new(Recorder)
			return breaks(live), nil
		},
		Patience: time.Second,
		Ground: Said(func(dp sdk.Dataplane) Sender {
			if s, ok := dp.(Sender); ok {
				return s
			}
			mu.Lock()
			defer mu.Unlock()
			return live
		}),
	}
}

// A dataplane that is broken in one way, and otherwise a Recorder.
type broken struct {
	*Recorder
	sync  func(context.Context, sdk.Update) (sdk.Result, error)
	send  func(Answer) Answer
	role  func(sdk.Role) error
	clean func(context.Context, sdk.Leftovers) ([]string, error)
}

func (b *broken) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if b.sync != nil {
		return b.sync(ctx, u)
	}
	return b.Recorder.Sync(ctx, u)
}

func (b *broken) SetRole(ctx context.Context, r sdk.Role) error {
	if b.role != nil {
		return b.role(r)
	}
	return b.Recorder.SetRole(ctx, r)
}

func (b *broken) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	if b.clean != nil {
		return b.clean(ctx, l)
	}
	return b.Recorder.Cleanup(ctx, l)
}

// TestSuiteBites holds dataplanes with a mistake each to the contract, and
// expects the check that is about it to say so.
func TestSuiteBites(t *testing.T) {
	for _, c := range []struct {
		name   string
		breaks func(*broken)
		check  string
	}{
		{"leaves what a Full does not name", leaveStale, "C03/full-drops-stale"},
		{"ignores Keep", ignoreKeep, "C03/keep"},
		{"takes an update that leads from elsewhere", takeGap, "C03/gap-resyncs"},
		{"takes a delta first", takeGap, "C00/first-is-full"},
		{"forgets to delete", forgetDelete, "C03/random-walk"},
		{"errs for one bad Service", errForOne, "C04/one-bad-service"},
		{"hangs on one bad Service", hangForOne, "C04/one-bad-service"},
		{"drops what a bad Service had", dropBad, "C04/bad-keeps-what-served"},
		{"hangs past the context", ignoreContext, "C11/ended-context"},
		{"renders everything each time", renderAll, "C05/ten-thousand-services"},
		{"cleans nothing up", cleanNothing, "C06/cleanup-leaves-nothing"},
		{"cleans up in a dry run", cleanDry, "C06/dry-run-only-names"},
		{"cannot go from Standby", oneRole, "C07/any-role-to-any"},
		{"serves whatever its role", ignoreRole, "C07/only-active-catches"},
		{"shows endpoints the node", hideClient, "C02/scenario/node-port-local"},
		{"hides nobody", hideNobody, "C02/scenario/node-port"},
		{"rejects what should be dropped", reject, "C02/scenario/source-ranges"},
		{"sends elsewhere", misroute, "C01/packets-are-sent"},
		{"forgets clients", forgetClients, "C02/affinity"},
		{"takes unknown values", takeUnknown, "C13/unknown-policy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := bare(func(r *Recorder) sdk.Dataplane {
				b := &broken{Recorder: r}
				c.breaks(b)
				return b.dataplane()
			})
			report, err := Check(t.Context(), s, Options{Run: regexp.MustCompile("^" + regexp.QuoteMeta(c.check) + "$"), TempDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			if report.Count(Fail) != 1 || report.Conforms() {
				t.Errorf("%s did not see it: %v", c.check, report.Findings)
			}
			t.Log(report)
		})
	}
}

// dataplane is b, as a Sender only where it tells other answers than a Recorder.
func (b *broken) dataplane() sdk.Dataplane {
	if b.send != nil {
		return misleading{b}
	}
	return b
}

type misleading struct{ *broken }

func (m misleading) Send(from sdk.Caller, to netip.AddrPort, protocol sdk.Protocol) Answer {
	return m.send(m.Recorder.Send(from, to, protocol))
}

func leaveStale(b *broken) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		for _, s := range b.Services() {
			u.Keep = append(u.Keep, s.Name)
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func ignoreKeep(b *broken) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		u.Keep = nil
		return b.Recorder.Sync(ctx, u)
	}
}

func takeGap(b *broken) {
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

func forgetDelete(b *broken) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		u.Delete = nil
		return b.Recorder.Sync(ctx, u)
	}
}

func unsound(u sdk.Update) bool {
	return slices.ContainsFunc(u.Set, func(s sdk.Service) bool { return s.Check() != nil })
}

func errForOne(b *broken) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		if unsound(u) {
			return sdk.Result{}, &sdk.Refusal{Why: "one is bad"}
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func hangForOne(b *broken) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		if unsound(u) {
			<-ctx.Done()
			return sdk.Result{}, ctx.Err()
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func dropBad(b *broken) {
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

func ignoreContext(b *broken) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		if ctx.Err() != nil {
			time.Sleep(grace + time.Second) // the mistake itself
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func renderAll(b *broken) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		r, err := b.Recorder.Sync(ctx, u)
		for range len(b.Services()) / 1000 {
			time.Sleep(20 * time.Millisecond) // the mistake itself
		}
		return r, err
	}
}

func cleanNothing(b *broken) {
	b.clean = func(ctx context.Context, l sdk.Leftovers) ([]string, error) {
		return b.Recorder.Cleanup(ctx, sdk.Leftovers{DryRun: true})
	}
}

func cleanDry(b *broken) {
	b.clean = func(ctx context.Context, l sdk.Leftovers) ([]string, error) {
		return b.Recorder.Cleanup(ctx, sdk.Leftovers{})
	}
}

func oneRole(b *broken) {
	b.role = func(r sdk.Role) error {
		if r == sdk.Standby {
			return &sdk.Refusal{Field: "role", Why: "no"}
		}
		return b.Recorder.SetRole(context.Background(), r)
	}
}

func ignoreRole(b *broken) {
	b.role = func(sdk.Role) error { return b.Recorder.SetRole(context.Background(), sdk.Active) }
}

func hideClient(b *broken) {
	b.send = func(a Answer) Answer { a.Client = defaultNode().Addrs[0]; return a }
}

func hideNobody(b *broken) {
	caller := netip.MustParseAddr("192.0.2.7") // who calls first in that scenario
	b.send = func(a Answer) Answer { a.Client = caller; return a }
}

func reject(b *broken) {
	b.send = func(a Answer) Answer {
		if a.Verdict == sdk.Drop {
			a.Verdict = sdk.Reject
		}
		return a
	}
}

func misroute(b *broken) {
	b.send = func(a Answer) Answer { a.Endpoint = at(10, 99, 1, 1); return a }
}

func forgetClients(b *broken) {
	b.send = func(a Answer) Answer {
		b.mu.Lock()
		defer b.mu.Unlock()
		clear(b.sticks)
		return a
	}
}

func takeUnknown(b *broken) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		r, err := b.Recorder.Sync(ctx, u)
		r.Failed = nil
		return r, err
	}
}

// TestReportWithoutGround: what was needed and left out disqualifies.
func TestReportWithoutGround(t *testing.T) {
	s := bare(func(r *Recorder) sdk.Dataplane { return r })
	s.Ground = nil
	report, err := Check(t.Context(), s, Options{Run: regexp.MustCompile("C01|C03/keep"), TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if report.Conforms() || report.Count(NotRun) != 1 || report.Count(Pass) != 1 {
		t.Errorf("a report without a packet: %s", report)
	}
}
