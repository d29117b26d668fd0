// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// TestRecorderConforms: a Recorder conforms over the wire, like a plugin.
func TestRecorderConforms(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // guards live
	var live *Recorder
	s := InProcess((&Recorder{}).description(), func() sdk.Dataplane {
		mu.Lock()
		defer mu.Unlock()
		live = new(Recorder)
		return live
	})
	s.Testbed = Said(func(sdk.Dataplane) Sender {
		mu.Lock()
		defer mu.Unlock()
		return live
	})
	Conform(t, s)
}

// TestBareRecorderConforms: a Recorder conforms without Serve.
func TestBareRecorderConforms(t *testing.T) {
	t.Parallel()
	Conform(t, bare(func(r *Recorder) sdk.Dataplane { return r }))
}

// bare returns a Subject that is called directly. breaks may replace the Recorder.
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
		Timeout: time.Second,
		Testbed: Said(func(dp sdk.Dataplane) Sender {
			if s, ok := dp.(Sender); ok {
				return s
			}
			mu.Lock()
			defer mu.Unlock()
			return live
		}),
	}
}

// A brokenRecorder is a Recorder with one mistake.
type brokenRecorder struct {
	*Recorder
	begin   func(context.Context, sdk.Setup) (sdk.Description, error)
	sync    func(context.Context, sdk.Update) (sdk.Result, error)
	inspect func(context.Context, func(sdk.Served) error) error
	send    func(sdk.Caller, netip.AddrPort, Answer) Answer
	forgets func(netip.AddrPort, sdk.Protocol, netip.AddrPort) bool
	role    func(sdk.Role) error
	clean   func(context.Context, sdk.Leftovers) ([]string, error)
	shown   sdk.Role
}

func (b *brokenRecorder) Report() sdk.Report { return sdk.Report{Shown: b.shown} }

func (b *brokenRecorder) Configure(ctx context.Context, s sdk.Setup) (sdk.Description, error) {
	if b.begin != nil {
		return b.begin(ctx, s)
	}
	return b.Recorder.Configure(ctx, s)
}

func (b *brokenRecorder) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if b.sync != nil {
		return b.sync(ctx, u)
	}
	return b.Recorder.Sync(ctx, u)
}

func (b *brokenRecorder) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	if b.inspect != nil {
		return b.inspect(ctx, tell)
	}
	return b.Recorder.Inspect(ctx, tell)
}

func (b *brokenRecorder) SetRole(ctx context.Context, r sdk.Role) error {
	if b.role != nil {
		return b.role(r)
	}
	return b.Recorder.SetRole(ctx, r)
}

func (b *brokenRecorder) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	if b.clean != nil {
		return b.clean(ctx, l)
	}
	return b.Recorder.Cleanup(ctx, l)
}

// TestSuiteDetectsMistakes runs checks on dataplanes with one mistake each, and each check must
// fail. Every line of the contract has at least one mistake.
func TestSuiteDetectsMistakes(t *testing.T) {
	t.Parallel()
	broken := map[string]bool{}
	for _, c := range mistakes() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := find(t, bare(func(r *Recorder) sdk.Dataplane {
				b := &brokenRecorder{Recorder: r}
				c.breaks(b)
				return b.dataplane()
			}), c.check)
			if f.Status != Fail {
				t.Errorf("%s did not detect the mistake: %s", c.check, f)
			}
			t.Log(f)
		})
		line, _, _ := strings.Cut(c.check, "/")
		broken[line] = true
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

// A mistake breaks the contract in one way, and a check must detect it.
type mistake struct {
	name   string
	breaks func(*brokenRecorder)
	check  string
}

func mistakes() []mistake {
	return []mistake{
		{"accepts a delta as its first update", takeGap, "C00/first-is-full"},
		{"flushes in a second Configure", flushAgain, "C00/same-setup-twice"},
		{"keeps its state in a new session", keepState, "C00/new-session-starts-over"},
		{"forwards to a wrong endpoint", misroute, "C01/packets-are-sent"},
		{"rejects what should be dropped", reject, "C01/scenario/source-ranges"},
		{"drops what should be rejected", drop, "C01/scenario/no-endpoints"},
		{"ignores source ranges", ignoreSources, "C01/scenario/source-ranges-local"},
		{"serves packets to no frontend", serveAll, "C01/scenario/cluster-ip"},
		{"masquerades every caller", hideClient, "C02/scenario/node-port-local"},
		{"masquerades no caller", hideNobody, "C02/scenario/node-port"},
		{"does not masquerade an endpoint that calls itself", hideNobodyBut("10.180.0.1"), "C02/scenario/hairpin"},
		{"uses one endpoint only", oneOnly, "C02/scenario/cluster-ip"},
		{"rejects what should be forwarded", rejectAll, "C02/scenario/external-ip"},
		{"has no affinity", forgetClients, "C02/affinity"},
		{"has a separate affinity for each frontend", forgetAtOthers, "C02/affinity-over-frontends"},
		{"keeps Services that a Full does not name", leaveStale, "C03/full-drops-stale"},
		{"accepts an update after a gap", takeGap, "C03/gap-resyncs"},
		{"ignores deletes", forgetDelete, "C03/random-walk"},
		{"fails a repeated Full", errTwice, "C03/full-twice"},
		{"fails a repeated delta", errDeltaTwice, "C03/delta-twice"},
		{"fails the delete of an unknown Service", errNobody, "C03/delete-of-nothing"},
		{"cuts connections", cutAll, "C03/established-tcp-stays"},
		{"fails an update for one bad Service", errForOne, "C13/unknown-kind"},
		{"hangs on one bad Service", hangForOne, "C13/unknown-kind"},
		{"stops serving a Service that becomes bad", dropBad, "C04/bad-keeps-what-served"},
		{"serves only addresses of the node", ownOnly, "C04/address-not-ours"},
		{"renders everything each time", renderAll, "C05/ten-thousand-services"},
		{"names nothing in a dry run", nameNothing, "C06/dry-run-only-names"},
		{"serves after a restart before it has a role", serveAtOnce, "C06/restart"},
		{"removes nothing in Cleanup", cleanNothing, "C06/cleanup-leaves-nothing"},
		{"removes everything in a dry run", cleanDry, "C06/dry-run-only-names"},
		{"names objects that do not exist", nameMore, "C06/cleanup-of-nothing"},
		{"serves before it has a role", serveAtOnce, "C07/only-active-catches"},
		{"refuses the role Standby", oneRole, "C07/any-role-to-any"},
		{"reports a wrong role", showActive, "C07/any-role-to-any"},
		{"serves in every role", ignoreRole, "C07/only-active-catches"},
		{"inspects nothing in Standby", inspectActive, "C07/standby-inspects"},
		{"inspects nothing in Standby, before a swap", inspectActive, "C07/swap-under-load"},
		{"cuts connections while draining", cutAll, "C07/draining-keeps-established"},
		{"accepts no update while draining", errDraining, "C07/draining-keeps-established"},
		{"cuts connections in another role", cutAll, "C07/every-role-keeps-established"},
		{"cuts connections by node ports in another role", cutAll, "C07/every-role-keeps-established-by-node-port"},
		{"loses updates while yielded", deafYielded, "C07/yielded-catches-up"},
		{"deletes no flow", forgetNone, "C09/udp-leaves-the-gone"},
		{"deletes every flow", cutAll, "C09/udp-stays-with-the-others"},
		{"deletes flows of an endpoint that still serves", forgetServing, "C09/udp-stays-with-who-still-serves"},
		{"keeps a flow when no endpoint serves", forgetNone, "C09/udp-leaves-when-nobody-serves"},
		{"keeps a flow to a deleted Service", forgetNone, "C09/udp-leaves-the-deleted"},
		{"removes an address after it was added", removeLast, "C10/frontend-changes-owner"},
		{"ignores a context that has ended", ignoreContext, "C11/ended-context"},
		{"does not stop when the context ends", ignoreEnd, "C11/context-ends-in-sync"},
		{"fails Inspect during Sync", busyInspect, "C11/inspect-and-report-beside"},
		{"accepts an unknown protocol", takeUnknown, "C13/unknown-protocol"},
		{"accepts an unknown family", takeUnknown, "C13/unknown-family"},
		{"accepts an unknown kind", takeUnknown, "C13/unknown-kind"},
		{"accepts an unknown policy", takeUnknown, "C13/unknown-policy"},
	}
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
				f := find(t, bare(func(r *Recorder) sdk.Dataplane {
					b := &brokenRecorder{Recorder: r}
					row.breaks(b)
					r.Describe.Limits = row.limits
					return b.dataplane()
				}), c.check)
				if f.Status != row.want || row.want == Limit && !slices.Equal(f.Limits, []sdk.Limit{c.limit}) {
					t.Errorf("with limits %v: %s, want %s", row.limits, f, row.want)
				}
			}
		})
	}
}

// TestReportWithoutTestbed: a dataplane does not conform if a needed check was not run.
func TestReportWithoutTestbed(t *testing.T) {
	s := bare(func(r *Recorder) sdk.Dataplane { return r })
	s.Testbed = nil
	s.Only = regexp.MustCompile("C01/packets|C03/full-twice").MatchString
	report, err := Check(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if report.Conforms() || report.Count(NotRun) != 1 || report.Count(Pass) != 1 {
		t.Errorf("without a testbed, the report is %s", report)
	}
}
