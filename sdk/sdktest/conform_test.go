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

// A broken dataplane is a Recorder with one mistake.
type broken struct {
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

func (b *broken) Report() sdk.Report { return sdk.Report{Shown: b.shown} }

func (b *broken) Configure(ctx context.Context, s sdk.Setup) (sdk.Description, error) {
	if b.begin != nil {
		return b.begin(ctx, s)
	}
	return b.Recorder.Configure(ctx, s)
}

func (b *broken) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if b.sync != nil {
		return b.sync(ctx, u)
	}
	return b.Recorder.Sync(ctx, u)
}

func (b *broken) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	if b.inspect != nil {
		return b.inspect(ctx, tell)
	}
	return b.Recorder.Inspect(ctx, tell)
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

// TestSuiteBites checks dataplanes with one mistake each: the check of that rule must fail. Every
// line of the contract has one or more.
func TestSuiteBites(t *testing.T) {
	t.Parallel()
	bitten := map[string]bool{}
	for _, c := range mistakes() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := find(t, bare(func(r *Recorder) sdk.Dataplane {
				b := &broken{Recorder: r}
				c.breaks(b)
				return b.dataplane()
			}), c.check)
			if f.Status != Fail {
				t.Errorf("%s did not see it: %s", c.check, f)
			}
			t.Log(f)
		})
		line, _, _ := strings.Cut(c.check, "/")
		bitten[line] = true
	}
	for _, c := range checks() {
		line, _, _ := strings.Cut(c.name, "/")
		if !bitten[line] && line != "C08" && line != "C12" { // those in TestSuiteBitesWhatLasts
			t.Errorf("nothing breaks line %s", line)
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
		t.Fatalf("%s is %d checks", check, len(report.Findings))
	}
	return report.Findings[0]
}

// A mistake breaks the contract in one way, and a check must detect it.
type mistake struct {
	name   string
	breaks func(*broken)
	check  string
}

func mistakes() []mistake {
	return []mistake{
		{"takes a delta first", takeGap, "C00/first-is-full"},
		{"flushes when it is configured again", flushAgain, "C00/same-setup-twice"},
		{"goes on in a new session", goOn, "C00/new-session-starts-over"},
		{"sends elsewhere", misroute, "C01/packets-are-sent"},
		{"rejects what should be dropped", reject, "C01/scenario/source-ranges"},
		{"drops what should be rejected", drop, "C01/scenario/no-endpoints"},
		{"lets every caller in", letIn, "C01/scenario/source-ranges-local"},
		{"catches what is not ours", catchAll, "C01/scenario/cluster-ip"},
		{"shows endpoints the node", hideClient, "C02/scenario/node-port-local"},
		{"hides nobody", hideNobody, "C02/scenario/node-port"},
		{"shows an endpoint itself", hideNobodyBut("10.180.0.1"), "C02/scenario/hairpin"},
		{"uses one endpoint only", oneOnly, "C02/scenario/cluster-ip"},
		{"rejects what should go on", rejectAll, "C02/scenario/external-ip"},
		{"forgets clients", forgetClients, "C02/affinity"},
		{"forgets clients at another address", forgetAtOthers, "C02/affinity-over-frontends"},
		{"leaves what a Full does not name", leaveStale, "C03/full-drops-stale"},
		{"takes an update that leads from elsewhere", takeGap, "C03/gap-resyncs"},
		{"forgets to delete", forgetDelete, "C03/random-walk"},
		{"errs when told twice", errTwice, "C03/full-twice"},
		{"errs when a delta comes twice", errDeltaTwice, "C03/delta-twice"},
		{"errs when it should delete nothing", errNobody, "C03/delete-of-nothing"},
		{"cuts connections", cutAll, "C03/established-tcp-stays"},
		{"errs for one bad Service", errForOne, "C13/unknown-kind"},
		{"hangs on one bad Service", hangForOne, "C13/unknown-kind"},
		{"drops what a bad Service had", dropBad, "C04/bad-keeps-what-served"},
		{"cannot serve any address", ownOnly, "C04/address-not-ours"},
		{"renders everything each time", renderAll, "C05/ten-thousand-services"},
		{"says nothing of what it serves", nameNothing, "C06/dry-run-only-names"},
		{"serves before it is told", serveAtOnce, "C06/restart"},
		{"cleans nothing up", cleanNothing, "C06/cleanup-leaves-nothing"},
		{"cleans up in a dry run", cleanDry, "C06/dry-run-only-names"},
		{"names what is not there", nameMore, "C06/cleanup-of-nothing"},
		{"serves at once", serveAtOnce, "C07/only-active-catches"},
		{"cannot go from Standby", oneRole, "C07/any-role-to-any"},
		{"shows another role", showActive, "C07/any-role-to-any"},
		{"serves whatever its role", ignoreRole, "C07/only-active-catches"},
		{"names nothing in Standby", inspectActive, "C07/standby-inspects"},
		{"names nothing in Standby, beside another", inspectActive, "C07/swap-under-load"},
		{"cuts connections while draining", cutAll, "C07/draining-keeps-established"},
		{"takes no update while draining", errDraining, "C07/draining-keeps-established"},
		{"cuts connections in another role", cutAll, "C07/every-role-keeps-established"},
		{"cuts connections by node ports in another role", cutAll, "C07/every-role-keeps-established-by-node-port"},
		{"does not hear while yielded", deafYielded, "C07/yielded-catches-up"},
		{"forgets no flow", forgetNone, "C09/udp-leaves-the-gone"},
		{"forgets every flow", cutAll, "C09/udp-stays-with-the-others"},
		{"forgets who still serves", forgetServing, "C09/udp-stays-with-who-still-serves"},
		{"keeps a flow when nobody serves", forgetNone, "C09/udp-leaves-when-nobody-serves"},
		{"keeps a flow to what is deleted", forgetNone, "C09/udp-leaves-the-deleted"},
		{"removes an address after it was added", removeLast, "C10/frontend-changes-owner"},
		{"hangs past the context", ignoreContext, "C11/ended-context"},
		{"does not stop when the context ends", ignoreEnd, "C11/context-ends-in-sync"},
		{"cannot be asked while it works", busyInspect, "C11/inspect-and-report-beside"},
		{"takes an unknown protocol", takeUnknown, "C13/unknown-protocol"},
		{"takes an unknown family", takeUnknown, "C13/unknown-family"},
		{"takes an unknown kind", takeUnknown, "C13/unknown-kind"},
		{"takes an unknown policy", takeUnknown, "C13/unknown-policy"},
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
		does, worse func(*broken)
	}{
		{sdk.LimitNoDrop, "C01/scenario/source-ranges", reject, letIn},
		{sdk.LimitNoClientAddress, "C02/scenario/node-port-local", hideClient, misroute},
		{sdk.LimitAffinityPerFrontend, "C02/affinity-over-frontends", forgetAtOthers, forgetClients},
		{sdk.LimitOwnAddressesOnly, "C04/address-not-ours", ownOnly, errForOne},
	} {
		t.Run(string(c.limit), func(t *testing.T) {
			t.Parallel()
			for _, row := range []struct {
				breaks func(*broken)
				limits []sdk.Limit
				want   Status
			}{
				{c.does, []sdk.Limit{dies}, Fail},
				{c.does, []sdk.Limit{c.limit, dies}, Limit},
				{c.worse, []sdk.Limit{c.limit, dies}, Fail},
			} {
				f := find(t, bare(func(r *Recorder) sdk.Dataplane {
					b := &broken{Recorder: r}
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
		t.Errorf("a report without a packet: %s", report)
	}
}
