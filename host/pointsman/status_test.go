// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/host/watch"
)

// well returns a status without warnings.
func well() admin.Status {
	return admin.Status{
		Dataplane: admin.Plugin{Name: "acme", State: "serving", Role: "active", PID: 7},
		Sync:      admin.Sync{Last: time.Now()},
	}
}

// TestStatusWithoutRole: the status says if the host does not know the role of the dataplane yet.
func TestStatusWithoutRole(t *testing.T) {
	s, out := well(), strings.Builder{}
	s.Dataplane.Version, s.Dataplane.Role = "0.1.0", ""
	writeStatus(&out, s)
	if want := "acme 0.1.0 is without a role yet, pid 7"; !strings.Contains(out.String(), want) {
		t.Errorf("status has no %q:\n%s", want, out.String())
	}
}

// TestStatusByCause: a cause why Services are not served is one line.
func TestStatusByCause(t *testing.T) {
	s, out := well(), strings.Builder{}
	for i := range 62 {
		s.Unserved = append(s.Unserved, admin.Problem{Service: fmt.Sprintf("shop/s%02d", i), Reason: "failed", Why: "no space"})
	}
	s.Unserved = append(s.Unserved, admin.Problem{Service: "shop/phone", Reason: "refused", Why: "sctp"})
	writeStatus(&out, s)
	var got []string
	for line := range strings.Lines(out.String()) {
		if text, is := strings.CutPrefix(line, "unserved\t"); is {
			got = append(got, strings.TrimSpace(text))
		}
	}
	if want := []string{"shop/s00, shop/s01, shop/s02 and 59 more failed: no space", "shop/phone refused: sctp"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*admin.Status)
		observations
		want string // the code and part of the text of each warning
	}{
		{name: "all is well", change: func(*admin.Status) {}},
		{name: "what the probes say", change: func(*admin.Status) {}, observations: observations{found: []health.Finding{{Code: health.NotServing, Text: "it fell"}, {Code: health.Waits, Text: "for 100%"}}},
			want: "W001 it fell\nW013 for 100%"},
		{name: "restarted", change: func(s *admin.Status) {
			s.Dataplane.Restarts, s.Dataplane.EndedAt, s.Dataplane.LastEnd = 1, time.Now().Add(-time.Minute), "signal 9"
		}, want: "W002 dataplane acme was restarted 1m0s ago: signal 9"},
		{name: "restarted long ago", change: func(s *admin.Status) { s.Dataplane.Restarts, s.Dataplane.EndedAt = 1, time.Now().Add(-time.Hour) }},
		{name: "sync", change: func(s *admin.Status) { s.Sync.Error = "no room" }, want: "W003 the last update failed, and the host retries: no room"},
		{name: "Services", change: func(s *admin.Status) {
			s.Unserved = []admin.Problem{{Service: "ns/a", Reason: "withheld"}, {Service: "ns/b", Reason: "failed"}, {Service: "ns/c", Reason: "withheld"}}
		}, want: "W004 not served as specified: 1 failed, 2 withheld"},
		{name: "config", change: func(s *admin.Status) { s.Config.Stale = "empty" }, want: "W005 the config file has been invalid since"},
		{name: "pending", change: func(s *admin.Status) { s.Config.Pending = []string{"mode"} }, want: "W006 settings in the config file that need a restart of the host: mode"},
		{name: "manifests", change: func(*admin.Status) {}, observations: observations{faults: []watch.Fault{{File: "web.yaml", Line: 3, Message: "bad"}, {File: "web.yaml", Line: 9, Message: "worse"}}},
			want: "W007 web.yaml:3: bad\nW007 web.yaml:9: worse"},
		{name: "swap failed", change: func(s *admin.Status) {
			s.LastSwap = &admin.Swapped{From: "iptables", To: "ipvs", Error: "no ip_vs"}
		}, want: "W009 the swap to ipvs failed: no ip_vs"},
		{name: "swap failed, and a later one succeeded", change: func(s *admin.Status) {
			s.LastSwap = &admin.Swapped{From: "iptables", To: "acme", Error: "it would lose a Service"}
			s.Swap = &admin.Swap{From: "iptables", To: "acme", Stage: "draining"}
		}},
		{name: "unfinished", change: func(s *admin.Status) {
			s.LastSwap = &admin.Swapped{From: "iptables", To: "ipvs", Left: "clear: no space"}
		},
			want: "W010 the swap to ipvs is not finished: clear: no space"},
		{name: "a port is taken", change: func(*admin.Status) {}, observations: observations{unbound: []string{"healthzBindAddress: in use"}},
			want: "W012 the host cannot bind an address, and retries every second: healthzBindAddress: in use"},
		{name: "an external IP is the node's", change: func(*admin.Status) {}, observations: observations{nodeAddrs: []string{"Service ns/web: external IP 192.0.2.10 is this node's own"}},
			want: "W020 Service ns/web: external IP 192.0.2.10 is this node's own"},
		{name: "left behind", change: func(s *admin.Status) { s.Dataplane.State = "refused" }, observations: observations{unattended: []string{"iptables: jump to KUBE-SERVICES and 3 more"}},
			want: "W018 rules in the kernel that nothing updates: iptables: jump to KUBE-SERVICES and 3 more"},
		{name: "away", change: func(*admin.Status) {}, observations: observations{sourceFault: "listing Nodes: refused"}, want: "W008 the source delivers no changes: listing Nodes: refused"},
	} {
		s := well()
		c.change(&s)
		var got []string
		for _, w := range warnings(s, c.observations) {
			got = append(got, w.Code+" "+w.Text)
		}
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, "\n")
		}
		if !slices.EqualFunc(got, want, strings.Contains) {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
}

// TestNotes: the status shows the notes of a dataplane, which are no warnings.
func TestNotes(t *testing.T) {
	s := well()
	s.Dataplane.Notes = []string{"a chain drops"}
	var status strings.Builder
	writeStatus(&status, s)
	if !strings.Contains(status.String(), "note\ta chain drops\n") {
		t.Errorf("no note in\n%s", status.String())
	}
	if w := warnings(s, observations{}); len(w) > 0 {
		t.Errorf("warned: %v", w)
	}
}

func TestLogMessage(t *testing.T) {
	for reason, want := range map[string]string{
		"PluginDown":        "plugin down",
		"ExternalIPRefused": "external IP refused",
		"ServiceCIDR":       "service CIDR",
		"IPRefused":         "IP refused",
		"IP":                "IP",
		"Starting":          "starting",
		"":                  "",
	} {
		if got := logMessage(reason); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}

// TestCanaryNotReported: notices about the host's own canary are no events.
func TestCanaryNotReported(t *testing.T) {
	r := report.New(time.Now)
	for _, object := range []string{"pointsman/canary/tcp4", "pointsman/canary-on-node/tcp4", "pointsman/web/tcp4"} {
		reportNotices(r)(track.Notice{Reason: track.ServiceServed, Object: object})
	}
	if got := r.Recent(); len(got) != 1 || got[0].Object != "pointsman/web/tcp4" {
		t.Errorf("reported: %+v", got)
	}
}
