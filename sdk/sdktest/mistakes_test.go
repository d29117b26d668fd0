// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A brokenRecorder is a Recorder with one mistake. Each func field replaces a method.
type brokenRecorder struct {
	*Recorder
	begin   func(context.Context, sdk.Setup) (sdk.Description, error)
	sync    func(context.Context, sdk.Update) (sdk.Result, error)
	inspect func(context.Context, func(sdk.Served) error) error
	send    func(from sdk.Caller, to netip.AddrPort, right Answer) Answer
	forgets func(endpoint netip.AddrPort) bool
	role    func(context.Context, sdk.Role) error
	clean   func(context.Context, sdk.Leftovers) ([]string, error)
	shown   sdk.Role
}

func (b *brokenRecorder) Report() sdk.Report { return sdk.Report{Shown: b.shown} }

func (b *brokenRecorder) Configure(ctx context.Context, s sdk.Setup) (sdk.Description, error) {
	return b.begin(ctx, s)
}

func (b *brokenRecorder) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	return b.sync(ctx, u)
}

func (b *brokenRecorder) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	return b.inspect(ctx, tell)
}

func (b *brokenRecorder) SetRole(ctx context.Context, r sdk.Role) error { return b.role(ctx, r) }

func (b *brokenRecorder) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	return b.clean(ctx, l)
}

// A misleading brokenRecorder answers packets itself.
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
	return m.forgets(ep)
}

// breaking returns a Subject with a mistake.
func breaking(breaks func(*brokenRecorder)) Subject {
	return bare(func(r *Recorder) sdk.Dataplane {
		b := &brokenRecorder{Recorder: r, begin: r.Configure, sync: r.Sync, inspect: r.Inspect, role: r.SetRole, clean: r.Cleanup}
		breaks(b)
		if b.send != nil || b.forgets != nil {
			return misleading{b}
		}
		return b
	})
}

// TestSuiteDetectsMistakes runs checks on dataplanes with one mistake each, and each check must
// fail. Every line of the contract has at least one mistake.
func TestSuiteDetectsMistakes(t *testing.T) {
	t.Parallel()
	broken := map[string]bool{}
	for _, c := range mistakes {
		for check := range strings.FieldsSeq(c.checks) {
			t.Run(c.name+" "+check, func(t *testing.T) {
				t.Parallel()
				f := find(t, breaking(c.breaks), check)
				if f.Status != Fail {
					t.Errorf("%s did not detect the mistake: %s", check, f)
				}
				t.Log(f)
			})
			line, _, _ := strings.Cut(check, "/")
			broken[line] = true
		}
	}
	for _, c := range checks() {
		line, _, _ := strings.Cut(c.name, "/")
		if !broken[line] && line != "C08" && line != "C12" { // see TestSuiteDetectsMistakesInKernel
			t.Errorf("no mistake breaks line %s", line)
		}
	}
}

// find runs one check.
func find(t *testing.T, s Subject, check string) Finding {
	t.Helper()
	s.Only = func(name string) bool { return name == check }
	report, err := Check(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) != 1 {
		t.Fatalf("%d checks have the name %s, want 1", len(report.Findings), check)
	}
	return report.Findings[0]
}

// mistakes break the contract in one way each, and all checks named beside one must detect it.
var mistakes = []struct {
	name, checks string
	breaks       func(*brokenRecorder)
}{
	{"accepts a delta as its first update, and after a gap", "C00/first-is-full C03/gap-resyncs", edits(func(b *brokenRecorder, u *sdk.Update) {
		u.From, u.Full = b.state.Revision(), u.Full || b.state.Revision() == 0
	})},
	{"flushes in a second Configure", "C00/same-setup-twice", func(b *brokenRecorder) {
		b.begin = func(ctx context.Context, s sdk.Setup) (sdk.Description, error) {
			clear(b.served)
			return b.Recorder.Configure(ctx, s)
		}
	}},
	{"keeps its state in a new session", "C00/new-session-starts-over", func(b *brokenRecorder) {
		b.begin = func(ctx context.Context, s sdk.Setup) (sdk.Description, error) {
			state := b.state
			d, err := b.Recorder.Configure(ctx, s)
			b.state = state
			return d, err
		}
	}},
	{"forwards to a wrong endpoint", "C01/packets-are-sent", misroute},
	{"rejects what should be dropped", "C01/scenario/source-ranges", reject},
	{"drops what should be rejected", "C01/scenario/no-endpoints", answers(func(_ sdk.Caller, a *Answer) {
		if a.Verdict == sdk.Reject {
			a.Verdict = sdk.Drop
		}
	})},
	{"ignores source ranges", "C01/scenario/source-ranges-local", ignoreSources},
	{"serves packets to no frontend", "C01/scenario/cluster-ip", answers(func(from sdk.Caller, a *Answer) {
		*a = Answer{Verdict: sdk.Forward, Endpoint: addrAt(10, 99, 1, 1), Client: from.Addr}
	})},
	{"masquerades every caller", "C02/scenario/node-port-local", hideClient},
	{"masquerades no caller", "C02/scenario/node-port", answers(func(_ sdk.Caller, a *Answer) {
		a.Client = netip.MustParseAddr("192.0.2.7") // the first caller in that scenario
	})},
	{"does not masquerade an endpoint that calls itself", "C02/scenario/hairpin", answers(func(from sdk.Caller, a *Answer) {
		if from.Addr == netip.MustParseAddr("10.180.0.1") {
			a.Client = from.Addr
		}
	})},
	{"uses one endpoint only", "C02/scenario/cluster-ip", func(b *brokenRecorder) {
		b.send = func(_ sdk.Caller, _ netip.AddrPort, a Answer) Answer {
			if s := b.Services(); len(s) > 0 && a.Verdict == sdk.Forward {
				a.Endpoint = s[0].Cluster[0].Addr
			}
			return a
		}
	}},
	{"rejects what should be forwarded", "C02/scenario/external-ip", answers(func(_ sdk.Caller, a *Answer) { a.Verdict = sdk.Reject })},
	{"has no affinity", "C02/affinity", forgetClients},
	{"has a separate affinity for each frontend", "C02/affinity-over-frontends", forgetAtOthers},
	{"keeps Services that a Full does not name", "C03/full-drops-stale", edits(func(b *brokenRecorder, u *sdk.Update) {
		for _, s := range b.Services() {
			if u.Full && !slices.ContainsFunc(u.Set, func(o sdk.Service) bool { return o.Name == s.Name }) {
				u.Set = append(u.Set, s)
			}
		}
	})},
	{"ignores deletes", "C03/random-walk", edits(func(_ *brokenRecorder, u *sdk.Update) { u.Delete = nil })},
	{"fails a repeated Full", "C03/full-twice", errIf(func(b *brokenRecorder, u sdk.Update) bool { return u.Full && len(b.Services()) > 0 })},
	{"fails a repeated delta", "C03/delta-twice", errIf(func(b *brokenRecorder, u sdk.Update) bool { return !u.Full && len(b.Services()) > 0 })},
	{"fails the delete of an unknown Service", "C03/delta-twice", errIf(func(_ *brokenRecorder, u sdk.Update) bool { return len(u.Delete) > 0 })},
	{"cuts connections, and deletes every flow", `C03/established-tcp-stays C07/draining-keeps-established C07/every-role-keeps-established
		C07/every-role-keeps-established-by-node-port C09/udp-stays-with-the-others`, forget(true)},
	{"fails an update for one bad Service", "C13/unknown-kind", errForOne},
	{"hangs on one bad Service", "C13/unknown-kind", func(b *brokenRecorder) {
		b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
			if isUnsound(b, u) {
				<-ctx.Done()
				return sdk.Result{}, ctx.Err()
			}
			return b.Recorder.Sync(ctx, u)
		}
	}},
	{"stops serving a Service that becomes bad", "C04/bad-keeps-what-served", afterwards(func(b *brokenRecorder, _ []sdk.Service, r *sdk.Result) {
		for _, f := range r.Failed {
			delete(b.served, f.Name)
		}
	})},
	{"serves only addresses of the node", "C04/address-not-ours", ownOnly},
	{"renders everything each time", "C05/ten-thousand-services", func(b *brokenRecorder) {
		born := time.Now()
		var everything time.Duration // longer than a Full takes the suite, also on a busy machine
		b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
			r, err := b.Recorder.Sync(ctx, u)
			if u.Full {
				everything = time.Since(born) + time.Second
			} else {
				stall(everything)
			}
			return r, err
		}
	}},
	{"names nothing", "C06/dry-run-only-names", func(b *brokenRecorder) {
		b.clean = func(ctx context.Context, l sdk.Leftovers) ([]string, error) {
			_, err := b.Recorder.Cleanup(ctx, l)
			return nil, err
		}
	}},
	{"names objects that do not exist", "C06/cleanup-of-nothing", func(b *brokenRecorder) {
		b.clean = func(ctx context.Context, l sdk.Leftovers) ([]string, error) {
			_, err := b.Recorder.Cleanup(ctx, l)
			return []string{"chain EVERYTHING"}, err
		}
	}},
	{"removes nothing in Cleanup", "C06/cleanup-leaves-nothing", func(b *brokenRecorder) {
		b.clean = func(ctx context.Context, _ sdk.Leftovers) ([]string, error) {
			return b.Recorder.Cleanup(ctx, sdk.Leftovers{DryRun: true})
		}
	}},
	{"removes everything in a dry run", "C06/dry-run-only-names", func(b *brokenRecorder) {
		b.clean = func(ctx context.Context, _ sdk.Leftovers) ([]string, error) {
			return b.Recorder.Cleanup(ctx, sdk.Leftovers{})
		}
	}},
	{"serves before it has a role", "C06/restart C07/only-active-catches", answers(func(from sdk.Caller, a *Answer) {
		*a = Answer{Verdict: sdk.Forward, Endpoint: addrAt(10, 180, 1, 8080), Client: from.Addr}
	})},
	{"refuses the role Standby", "C07/any-role-to-any", func(b *brokenRecorder) {
		b.role = func(ctx context.Context, r sdk.Role) error {
			if r == sdk.Standby {
				return &sdk.Refusal{Field: "role", Why: "no"}
			}
			return b.Recorder.SetRole(ctx, r)
		}
	}},
	{"reports a wrong role", "C07/any-role-to-any", func(b *brokenRecorder) { b.shown = sdk.Active }},
	{"serves in every role", "C07/only-active-catches", func(b *brokenRecorder) {
		b.role = func(ctx context.Context, _ sdk.Role) error { return b.Recorder.SetRole(ctx, sdk.Active) }
	}},
	{"inspects nothing in Standby", "C07/standby-inspects C07/swap-under-load", func(b *brokenRecorder) {
		b.inspect = func(ctx context.Context, f func(sdk.Served) error) error {
			if b.Role() != sdk.Active {
				return nil
			}
			return b.Recorder.Inspect(ctx, f)
		}
	}},
	{"accepts no update while draining", "C07/draining-keeps-established", errIf(func(b *brokenRecorder, _ sdk.Update) bool { return b.Role() == sdk.Draining })},
	{"loses updates while yielded", "C07/yielded-catches-up", func(b *brokenRecorder) {
		b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
			if b.Role() == sdk.Yielded {
				return sdk.Result{}, nil
			}
			return b.Recorder.Sync(ctx, u)
		}
	}},
	{"deletes no flow", "C09/udp-leaves-the-gone C09/udp-leaves-when-nobody-serves C09/udp-leaves-the-deleted", forget(false)},
	{"deletes flows of an endpoint that still serves", "C09/udp-stays-with-who-still-serves", func(b *brokenRecorder) {
		b.forgets = func(ep netip.AddrPort) bool {
			return !slices.ContainsFunc(b.Services()[0].Reachable(), func(e sdk.Endpoint) bool { return e.Addr == ep })
		}
	}},
	{"removes an address after it was added", "C10/frontend-changes-owner", afterwards(func(b *brokenRecorder, before []sdk.Service, _ *sdk.Result) {
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
	})},
	{"ignores a context that has ended", "C11/context-ends-in-sync", func(b *brokenRecorder) {
		b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
			if ctx.Err() != nil {
				stall(grace + time.Second)
			}
			return b.Recorder.Sync(ctx, u)
		}
	}},
	{"does not stop when the context ends", "C11/context-ends-in-sync", func(b *brokenRecorder) {
		b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
			if len(u.Set) > 1000 {
				stall(grace + 2*time.Second)
			}
			return b.Recorder.Sync(ctx, u)
		}
	}},
	{"fails Inspect during Sync", "C11/inspect-and-report-beside", func(b *brokenRecorder) {
		asked := make(chan struct{}, 1)
		b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
			if !u.Full {
				<-asked // Sync lasts until Inspect is called
			}
			return b.Recorder.Sync(ctx, u)
		}
		b.inspect = func(context.Context, func(sdk.Served) error) error {
			select {
			case asked <- struct{}{}:
			default:
			}
			return errors.New("busy")
		}
	}},
	{"accepts unknown values", "C13/unknown-protocol C13/unknown-family C13/unknown-kind C13/unknown-policy", afterwards(func(_ *brokenRecorder, _ []sdk.Service, r *sdk.Result) {
		r.Failed = nil
	})},
}

// TestLimitsAreExpected: the outcome of a limit fails if the limit is not declared, and has the
// status Limit if it is. A worse outcome fails in both cases.
func TestLimitsAreExpected(t *testing.T) {
	t.Parallel()
	dies := sdk.LimitDiesWithProcess
	for _, c := range []struct {
		limit       sdk.Limit
		check       string
		does, worse func(*brokenRecorder)
	}{
		{sdk.LimitNoDrop, "C01/scenario/source-ranges", reject, ignoreSources},
		{sdk.LimitNoClientAddress, "C02/scenario/node-port-local", hideClient, misroute},
		{sdk.LimitAffinityPerFrontend, "C02/affinity-over-frontends", forgetAtOthers, forgetClients},
		{sdk.LimitOwnAddressesOnly, "C04/address-not-ours", ownOnly, errForOne},
	} {
		t.Run(string(c.limit), func(t *testing.T) {
			t.Parallel()
			for _, row := range []struct {
				breaks func(*brokenRecorder)
				limits []sdk.Limit
				want   Status
			}{
				{c.does, []sdk.Limit{dies}, Fail},
				{c.does, []sdk.Limit{c.limit, dies}, Limit},
				{c.worse, []sdk.Limit{c.limit, dies}, Fail},
			} {
				f := find(t, breaking(func(b *brokenRecorder) { row.breaks(b); b.Describe.Limits = row.limits }), c.check)
				if f.Status != row.want || row.want == Limit && !slices.Equal(f.Limits, []sdk.Limit{c.limit}) {
					t.Errorf("with limits %v: %s, want %s", row.limits, f, row.want)
				}
			}
		})
	}
}

// Mistakes that are also the outcomes of limits.
var (
	misroute   = answers(func(_ sdk.Caller, a *Answer) { a.Endpoint = addrAt(10, 99, 1, 1) })
	hideClient = answers(func(_ sdk.Caller, a *Answer) { a.Client = defaultNode().Addrs[0] })
	reject     = answers(func(_ sdk.Caller, a *Answer) { a.Verdict = max(a.Verdict, sdk.Reject) })
	errForOne  = errIf(isUnsound)

	ignoreSources = edits(func(_ *brokenRecorder, u *sdk.Update) {
		for i := range u.Set {
			u.Set[i].Frontends = slices.Clone(u.Set[i].Frontends)
			for j := range u.Set[i].Frontends {
				u.Set[i].Frontends[j].Sources = nil
			}
		}
	})
)

func forgetClients(b *brokenRecorder) {
	b.send = func(_ sdk.Caller, _ netip.AddrPort, a Answer) Answer { clear(b.affinity); return a }
}

func forgetAtOthers(b *brokenRecorder) {
	kept := map[netip.AddrPort]netip.AddrPort{}
	b.send = func(_ sdk.Caller, to netip.AddrPort, a Answer) Answer {
		s := b.Services()[0]
		if _, ok := kept[to]; !ok {
			kept[to] = s.Cluster[len(kept)%len(s.Cluster)].Addr
		}
		a.Endpoint = kept[to]
		return a
	}
}

func ownOnly(b *brokenRecorder) {
	b.Fail = func(s sdk.Service) error {
		if len(s.Frontends) > 0 && s.Frontends[0].Addr.Addr() == netip.MustParseAddr("172.30.9.9") {
			return &sdk.Refusal{Field: "frontends", Why: "no interface has the address"}
		}
		return nil
	}
}

// answers changes the answers to packets.
func answers(change func(from sdk.Caller, a *Answer)) func(*brokenRecorder) {
	return func(b *brokenRecorder) {
		b.send = func(from sdk.Caller, _ netip.AddrPort, a Answer) Answer { change(from, &a); return a }
	}
}

// forget forgets all flows, or none.
func forget(all bool) func(*brokenRecorder) {
	return func(b *brokenRecorder) { b.forgets = func(netip.AddrPort) bool { return all } }
}

// edits changes updates before they are applied.
func edits(change func(*brokenRecorder, *sdk.Update)) func(*brokenRecorder) {
	return func(b *brokenRecorder) {
		b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
			change(b, &u)
			return b.Recorder.Sync(ctx, u)
		}
	}
}

// afterwards changes what is served, or the result, after an update was applied. It gets the Services
// that were served before.
func afterwards(change func(b *brokenRecorder, before []sdk.Service, r *sdk.Result)) func(*brokenRecorder) {
	return func(b *brokenRecorder) {
		b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
			before := b.Services()
			r, err := b.Recorder.Sync(ctx, u)
			b.mu.Lock()
			defer b.mu.Unlock()
			change(b, before, &r)
			return r, err
		}
	}
}

// errIf makes some updates fail.
func errIf(bad func(*brokenRecorder, sdk.Update) bool) func(*brokenRecorder) {
	return func(b *brokenRecorder) {
		b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
			if bad(b, u) {
				return sdk.Result{}, errors.New("the mistake")
			}
			return b.Recorder.Sync(ctx, u)
		}
	}
}

func isUnsound(_ *brokenRecorder, u sdk.Update) bool {
	return slices.ContainsFunc(u.Set, func(s sdk.Service) bool { return s.Check() != nil })
}

// stall ignores its context and takes too long. A check measures that in real time.
func stall(d time.Duration) { time.Sleep(d) }
