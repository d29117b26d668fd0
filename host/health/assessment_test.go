// SPDX-License-Identifier: Apache-2.0

package health

import (
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// TestAssessment checks every combination of facts: a node without findings has good probes, each failing probe has a
// finding with the reason, and each part of the assessment depends only on the facts that define it.
func TestAssessment(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for bits := range 1 << 8 {
		bit := func(n int) bool { return bits>>n&1 == 1 }
		for _, waited := range []time.Duration{-time.Second, 0, 2 * time.Second, 3 * time.Second, 59 * time.Second, time.Minute, 24 * time.Hour} {
			f := Facts{
				Now: now, Shown: 3 * time.Second, Allowed: time.Minute, Synced: bit(0), Leaving: bit(1),
				Dataplane: Dataplane{Name: "acme", State: Serving, Up: bit(2), Filled: bit(3), Active: bit(4)},
			}
			if bit(5) {
				f.Dataplane.NoWriter = "pid 7 is the writer"
			}
			if bit(6) {
				f.Dataplane.State = "waiting"
			}
			if bit(7) {
				f.Stuck = "a loop has not turned for 2m0s"
			}
			if waited >= 0 {
				f.Waiting = now.Add(-waited)
			}
			j, codes := Assess(f), make(map[string]bool)
			for _, found := range j.Findings {
				codes[found.Code] = true
			}
			p, late := f.Dataplane, waited >= f.Allowed
			switch {
			case len(j.Findings) == 0 && !(j.Live && j.Healthy && j.Eligible && j.Ready):
				t.Errorf("no findings, and a probe fails: %+v of %+v", j, f)
			case !j.Live != codes[HostStuck], !j.Healthy && !codes[Waits], !j.Eligible != codes[NotEligible], !j.Ready && !codes[NotServing] && !codes[NoWriter] && !codes[Waits]:
				t.Errorf("a probe fails without a reason: %+v of %+v", j, f)
			case j.Live != (f.Stuck == ""), j.Healthy != !late, j.Ready && (!p.Up || !p.Filled || !p.Active || p.NoWriter != "" || late), codes[Waits] != (waited >= f.Shown):
				t.Errorf("%+v of %+v", j, f)
			}
		}
	}
}

// TestFindings compares the text of each finding.
func TestFindings(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	since := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		change func(*Facts)
		want   string
	}{
		{func(*Facts) {}, ""},
		{func(f *Facts) {
			f.Dataplane.State, f.Dataplane.Why, f.Dataplane.Up = "refused", "it needs ip_vs", false
		}, "W001 dataplane acme is refused: it needs ip_vs"},
		{func(f *Facts) { f.Dataplane.State, f.Dataplane.Up = "starting", false }, "W001 dataplane acme is starting"},
		{func(f *Facts) { f.Dataplane.Filled = false }, "W001 dataplane acme is up, and has not confirmed all Services yet"},
		{func(f *Facts) { f.Dataplane.Filled, f.Synced = false, false }, "W001 dataplane acme is up, and has no update: the source has not listed the Services yet"},
		{func(f *Facts) { f.Dataplane.NoWriter = "pid 7 is the writer" }, "W014 dataplane acme may not write, so its updates are not served: pid 7 is the writer"},
		{func(f *Facts) { f.Dataplane.Report.Lost = "ipv4: a chain was deleted" }, "W023 dataplane acme found at its last check that another program had removed or changed its rules, and readyz answers 503: ipv4: a chain was deleted"},
		{func(f *Facts) { f.Dataplane.Repairs, f.Dataplane.Report.Repair = 2, "ipv4: a chain" }, ""},
		{func(f *Facts) { f.Dataplane.Repairs, f.Dataplane.Report.Repair = 3, "ipv4: a chain" }, "W023 dataplane acme undoes what another program changed, the last time: ipv4: a chain; another program changes our rules again and again, 3 times in 5 minutes"},
		{func(f *Facts) { f.Waiting, f.Dataplane.Pending = since(2*time.Second), 3 }, ""},
		{func(f *Facts) { f.Dataplane.Report.Degraded = []string{"a chain drops"} }, "W024 packets to Services may not pass this node: a chain drops"},
		{func(f *Facts) { f.Waiting, f.Dataplane.Pending = since(3*time.Second), 3 }, "W013 3 ports of Services wait to be served, the first for 3s"},
		{func(f *Facts) { f.Waiting, f.Dataplane.Pending = since(61*time.Second), 1 }, "W013 a port of a Service has waited to be served for 1m1s; healthz answers 503, so load balancers leave this node out"},
		{func(f *Facts) { f.Waiting = since(5 * time.Second) }, "W013 an update has waited to be written for 5s"},
		{func(f *Facts) { f.Nameless = true }, "W022 the API server has no Node object of this node's name, and healthz answers 503 so that load balancers leave this node out"},
		{func(f *Facts) { f.Leaving = true }, "W015 the Node is about to be removed, and healthz answers 503 so that load balancers leave it out"},
		{func(f *Facts) { f.Stuck = "a loop has not turned for 2m0s" }, "W016 a loop has not turned for 2m0s, and livez answers 503"},
	} {
		f := Facts{Now: now, Shown: 3 * time.Second, Allowed: time.Minute, Synced: true, Dataplane: Dataplane{Name: "acme", State: Serving, Up: true, Filled: true, Active: true}}
		c.change(&f)
		var got []string
		for _, found := range Assess(f).Findings {
			got = append(got, found.Code+" "+found.Text)
		}
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestNeverProgrammed starts a node on which no update ever succeeds, for each cause.
func TestNeverProgrammed(t *testing.T) {
	for what, dataplane := range map[string]Dataplane{
		"no binary":                {State: "waiting", Why: "there is no such file"},
		"it refuses":               {State: "refused", Why: "it needs ip_vs"},
		"its first update fails":   {State: Serving, Up: true, Active: true, Failure: "iptables-restore: exit status 1"},
		"its first update is slow": {State: Serving, Up: true, Active: true},
		"it is not the writer":     {State: Serving, Up: true, Filled: true, Active: true, NoWriter: "pid 7 is"},
	} {
		b := newHarness()
		b.setDataplane(func(p *Dataplane) { *p = dataplane; p.Name = "acme" })
		b.pass(5 * time.Second)
		if j := b.Assess(); len(j.Findings) == 0 || j.Ready || !j.Healthy {
			t.Errorf("%s, after 5 s: %+v", what, j)
		}
		b.pass(54 * time.Second)
		early := b.codes()
		b.pass(2 * time.Second)
		if late := b.codes(); early != "200 200 503" || late != "503 200 503" {
			t.Errorf("%s: %s within two periods, and %s later", what, early, late)
		}
		if all := scrape(t, b); series(all["pointsman_healthy"])+series(all["pointsman_ready"])+series(all["pointsman_live"]) != " 0 0 1" {
			t.Errorf("%s: healthy %s, ready %s, live %s", what, series(all["pointsman_healthy"]), series(all["pointsman_ready"]), series(all["pointsman_live"]))
		}
	}
}

// TestUnheard: before the source has synced no change is owed, so load balancers continue to use
// the rules of an earlier host.
func TestUnheard(t *testing.T) {
	b := newHarness(func(s *Settings) { s.Tracker = track.New(nil) })
	b.setDataplane(func(p *Dataplane) { p.Filled = false })
	b.pass(10 * time.Minute)
	if got := b.codes(); got != "200 200 503" {
		t.Errorf("%s", got)
	}
}

// TestSeveralDataplanes: only the dataplane that serves is active, and the packets that all dataplanes dropped count, so
// that a swap and its rollback do not look like more drops.
func TestSeveralDataplanes(t *testing.T) {
	for _, c := range []struct {
		change func(*Dataplane)
		want   string
	}{
		{func(*Dataplane) {}, "1"},
		{func(p *Dataplane) { p.Up = false }, "0"},
		{func(p *Dataplane) { p.Active = false }, "0"},
		{func(p *Dataplane) { p.NoWriter = "pid 7 is" }, "0"},
	} {
		b := newHarness()
		b.setDataplane(func(p *Dataplane) { p.Dropped = map[string]uint64{sdk.DropNoEndpoint: 5}; c.change(p) })
		b.dataplanes = append(b.dataplanes, Dataplane{
			Name: "other", State: Serving, Up: true, Filled: true, Active: true, Report: sdk.Report{Flows: 4},
			Dropped: map[string]uint64{sdk.DropNoEndpoint: 1000, sdk.DropSourceRange: 2},
		})
		all := scrape(t, b)
		for name, want := range map[string]string{
			"pointsman_plugin_active":         "plugin=iptables " + c.want + "; plugin=other 0",
			"pointsman_plugin_flows":          "plugin=iptables 0; plugin=other 4",
			"pointsman_dropped_packets_total": "reason=no_endpoint 1005; reason=source_range 2",
		} {
			if got := series(all[name]); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
}
