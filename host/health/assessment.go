// SPDX-License-Identifier: Apache-2.0

/*
Package health answers questions about the health of the node, from the kubelet, load
balancers, Prometheus and systemd. All answers derive from one assessment (Assess in
this file), which `pointsman status` uses too. The package only observes and never
acts on a dataplane. Its servers keep answering while a plugin is away. Start reading
at Assess.

	:10256  /healthz /livez /readyz            endpoints.go ◀─ Assess: live, healthy, eligible, ready?
	:10249  /metrics /metrics/slis             metrics.go, samples.go
	        /proxyMode /configz /statusz …     endpoints.go
	:PORT   each Service's healthCheckNodePort checks.go    ◀─ tracker: how many endpoints are ready here?

Ports, paths, bodies and metrics named kubeproxy_* are compatible with kube-proxy, so
that probes, dashboards and alerts keep working. Other metrics are named pointsman_*.
*/
package health

import (
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// Facts are the input of Assess at one instant.
type Facts struct {
	Now       time.Time
	Shown     time.Duration // a change that has waited longer is shown in status
	Allowed   time.Duration // a change that has waited longer is late
	Dataplane Dataplane     // the dataplane that should serve; others do not matter
	Synced    bool          // all objects that existed at the start are loaded
	Waiting   time.Time     // since when a change waits to be served; zero if none does
	Leaving   bool          // the Node is about to be removed, so load balancers must not choose it
	Nameless  bool          // the API server has no Node with our name
	Stuck     string        // a loop of the host that is stuck; empty if none is
}

// An Assessment is the health of a node. It is the only source for every answer about health:
// status and its exit code, the probes, the metrics, and the Services' health checks.
type Assessment struct {
	Live     bool          // livez; if false, restarting the host may help
	Healthy  bool          // no change is late; used by the Services' health checks and pointsman_healthy
	Eligible bool          // healthz is Healthy and Eligible
	Ready    bool          // readyz: the dataplane serves, has the whole state, can write, found its rules unchanged at its last check, and is not late
	Waited   time.Duration // how long the oldest change has waited to be served
	Findings []Finding
}

// A Finding is a problem of a node. A node without findings is live, healthy, eligible and
// ready.
type Finding struct{ Code, Text, Try string }

// Codes of findings. They never change, and docs/warnings.md explains them.
const (
	NotServing  = "W001"
	Waits       = "W013"
	NoWriter    = "W014"
	NotEligible = "W015"
	HostStuck   = "W016"
	NoNode      = "W022"
	Meddled     = "W023"
	Degraded    = "W024"
)

// Assess returns the health of a node with the facts f.
func Assess(f Facts) Assessment {
	p := f.Dataplane
	waited := time.Duration(0)
	if !f.Waiting.IsZero() {
		waited = max(0, f.Now.Sub(f.Waiting))
	}
	late, then := !f.Waiting.IsZero() && waited >= f.Allowed, ""
	if late {
		then = "; healthz answers 503, so load balancers leave this node out"
	}
	j := Assessment{
		Live:     f.Stuck == "",
		Healthy:  !late,
		Eligible: !f.Leaving && !f.Nameless,
		Ready:    p.serves() && p.NoWriter == "" && p.Report.Lost == "" && !late,
		Waited:   waited,
	}
	find := func(code, try, format string, args ...any) {
		j.Findings = append(j.Findings, Finding{code, fmt.Sprintf(format, args...), try})
	}
	if f.Stuck != "" {
		find(HostStuck, "restart the host", "%s, and livez answers 503", f.Stuck)
	}
	if why := notServing(p, f.Synced); why != "" {
		find(NotServing, "pointsman plugin info "+p.Name, "dataplane %s %s", p.Name, why)
	}
	if p.NoWriter != "" {
		find(NoWriter, "pointsman plugin info "+p.Name, "dataplane %s may not write, so its updates are not served: %s", p.Name, p.NoWriter)
	}
	switch {
	case p.Report.Lost != "":
		find(Meddled, "pointsman events", "dataplane %s found at its last check that another program had removed or changed its rules, and readyz answers 503: %s%s", p.Name, p.Report.Lost, repeatedText(p))
	case p.Repairs >= manyRepairs:
		find(Meddled, "pointsman events", "dataplane %s undoes what another program changed, the last time: %s%s", p.Name, p.Report.Repair, repeatedText(p))
	}
	for _, why := range p.Report.Degraded {
		find(Degraded, "pointsman explain", "packets to Services may not pass this node: %s", why)
	}
	if late || !f.Waiting.IsZero() && waited >= f.Shown {
		find(Waits, "pointsman plugin logs "+p.Name, "%s for %s%s", whatWaits(p), phrase.Round(waited), then)
	}
	if f.Nameless {
		find(NoNode, "set hostnameOverride to this node's name in Kubernetes", "the API server has no Node object of this node's name, and healthz answers 503 so that load balancers leave this node out")
	}
	if f.Leaving {
		find(NotEligible, "", "the Node is about to be removed, and healthz answers 503 so that load balancers leave it out")
	}
	return j
}

// manyRepairs is the number of repairs in the last minutes from which on status says that they repeat.
const manyRepairs = 3

func repeatedText(p Dataplane) string {
	if p.Repairs < manyRepairs {
		return ""
	}
	return fmt.Sprintf("; another program changes our rules again and again, %d times in 5 minutes", p.Repairs)
}

// serves reports whether the dataplane serves the whole state that it was sent.
func (p Dataplane) serves() bool { return p.Up && p.Filled && p.Active }

// notServing returns the reason why the dataplane does not serve, or "" if it does.
func notServing(p Dataplane, synced bool) string {
	switch {
	case p.State != Serving && p.Why != "":
		return fmt.Sprintf("is %s: %s", p.State, p.Why)
	case p.State != Serving:
		return "is " + p.State
	case p.serves():
		return ""
	case !synced:
		return "is up, and has no update: the source has not listed the Services yet"
	}
	return "is up, and has not confirmed all Services yet"
}

// Serving is the state of a plugin that is in a session and answers heartbeats.
const Serving = "serving"

func whatWaits(p Dataplane) string {
	switch p.Pending {
	case 0:
		return "an update has waited to be written"
	case 1:
		return "a port of a Service has waited to be served"
	}
	return fmt.Sprintf("%d ports of Services wait to be served, the first", p.Pending)
}

// progress tracks since when a change waits to be served, across all sessions and dataplanes.
// It does not read the clock: the caller passes the time.
type progress struct {
	waiting   time.Time     // since when a change waits; zero if none does
	served    track.Changes // the changes up to which nothing was owed at the last observation
	ready     bool          // the whole state was served at least once
	confirmed time.Time     // time of the last confirmation; zero if none
	families  []sdk.Family  // families that were in a confirmed update
}

// update records the state of the dataplane that should serve. Before the source has synced
// nothing can be owed: the rules that an earlier host left in the kernel serve.
func (p *progress) update(dataplane Dataplane, synced bool, changes track.Changes, now time.Time) {
	follows := dataplane.serves() && dataplane.NoWriter == ""
	switch {
	case !synced:
	case follows:
		p.waiting, p.ready = dataplane.Since, true
	case p.waiting.IsZero() && p.owes(dataplane, changes):
		p.waiting = now
	}
	if follows && dataplane.Since.IsZero() {
		p.served = changes
	}
}

// owes reports whether a change waits although the dataplane is away, gets a Full, or cannot write. In these states the
// cursor does not tell what is owed. Earlier confirmed changes are in the kernel and served, unless the dataplane dies
// with its process.
func (p *progress) owes(dataplane Dataplane, changes track.Changes) bool {
	return !p.ready || dataplane.Mortal || dataplane.NoWriter != "" || dataplane.Failure != "" || changes != p.served
}

// confirm records the time of a confirmation. Families that the update did not contain are as
// up to date as the others.
func (p *progress) confirm(families []sdk.Family, now time.Time) {
	p.confirmed = now
	for _, f := range families {
		if !slices.Contains(p.families, f) {
			p.families = append(p.families, f)
		}
	}
}
