// SPDX-License-Identifier: Apache-2.0

/*
Package health answers what asks how the node is doing: the kubelet, load
balancers, Prometheus, systemd. What they hear is one assessment (assessment.go), which
status says too. The package acts on nothing, and its servers go on
answering while a plugin is away.

	:10256  /healthz /livez /readyz            endpoints.go ◀─ Assess: live, healthy, eligible, ready?
	:10249  /metrics /metrics/slis             metrics.go, samples.go
	        /proxyMode /configz /statusz …     endpoints.go
	:PORT   each Service's healthCheckNodePort checks.go    ◀─ tracker: how many endpoints are ready here?

Ports, paths, bodies and the kubeproxy_ names are kube-proxy's, so that probes,
dashboards and alerts keep working; what is ours alone is called pointsman_.
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

// Facts are what the health of a node depends on, at one instant.
type Facts struct {
	Now       time.Time
	Shown     time.Duration // what has waited for so long is worth a look
	Allowed   time.Duration // what has waited for so long is late
	Dataplane Dataplane     // the dataplane that is meant to serve; no other one counts
	Synced    bool          // everything there was at the start is known
	Waiting   time.Time     // since when something waits to be served; zero: nothing does
	Leaving   bool          // the Node is about to be removed, so load balancers must not choose it
	Nameless  bool          // the API server has no Node of this name
	Stuck     string        // a loop of the host that is stuck; empty: none is
}

// An Assessment is how a node is. It is made in one place, and everything that can be asked
// answers by it: status and its exit, the probes, the metrics, and the Services' health checks.
type Assessment struct {
	Live     bool          // livez: a restart of the host would not help
	Healthy  bool          // nothing is late; the Services' health checks and pointsman_healthy
	Eligible bool          // with Healthy: healthz
	Ready    bool          // readyz: the dataplane serves, was sent everything, writes, found it there at its last look, and is not late
	Waited   time.Duration // for how long something has waited to be served
	Findings []Finding
}

// A Finding is a reason why a node is not well. A node without one is live, healthy,
// eligible and ready.
type Finding struct{ Code, Text, Try string }

// The codes of findings. They stay the same, and docs/warnings.md explains them.
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

// Assess returns how a node is by f.
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
		find(NoWriter, "pointsman plugin info "+p.Name, "dataplane %s may not write, so what it was told is not served: %s", p.Name, p.NoWriter)
	}
	switch {
	case p.Report.Lost != "":
		find(Meddled, "pointsman events", "at its last look dataplane %s found that another program had removed or changed what it wrote, and readyz answers 503: %s%s", p.Name, p.Report.Lost, often(p))
	case p.Repairs >= again:
		find(Meddled, "pointsman events", "dataplane %s undoes what another program changed, the last time: %s%s", p.Name, p.Report.Repair, often(p))
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

// again is how many repairs in the last minutes are no accident.
const again = 3

func often(p Dataplane) string {
	if p.Repairs < again {
		return ""
	}
	return fmt.Sprintf("; another program changes our rules again and again, %d times in 5 minutes", p.Repairs)
}

// serves reports whether the dataplane serves all that it was sent.
func (p Dataplane) serves() bool { return p.Up && p.Filled && p.Active }

// notServing says why the dataplane does not serve; empty: it does.
func notServing(p Dataplane, synced bool) string {
	switch {
	case p.State != Serving && p.Why != "":
		return fmt.Sprintf("is %s: %s", p.State, p.Why)
	case p.State != Serving:
		return "is " + p.State
	case p.serves():
		return ""
	case !synced:
		return "is up, and has been told nothing: the source has not said yet what there is"
	}
	return "is up, and has not been told everything yet"
}

// Serving is the state of a plugin that is in a session and answers.
const Serving = "serving"

func whatWaits(p Dataplane) string {
	switch p.Pending {
	case 0:
		return "what is to be served has waited to be written"
	case 1:
		return "a port of a Service has waited to be served"
	}
	return fmt.Sprintf("%d ports of Services wait to be served, the first", p.Pending)
}

// progress keeps since when something waits to be served, over all sessions and all
// dataplanes. It is given what is, and when; it looks at no clock.
type progress struct {
	waiting   time.Time     // since when something waits; zero: nothing does
	served    track.Changes // that nothing was owed of when it was last looked
	ready     bool          // everything was served once
	confirmed time.Time     // when something last was; zero: nothing was
	families  []sdk.Family  // of which something was
}

// look notes how the dataplane that is meant to serve is. Before the source has synced
// nothing can be owed: what an earlier host left in the kernel serves.
func (p *progress) look(dataplane Dataplane, synced bool, changes track.Changes, now time.Time) {
	follows := dataplane.serves() && dataplane.NoWriter == ""
	switch {
	case !synced:
		p.waiting = time.Time{}
	case follows:
		p.waiting, p.ready = dataplane.Since, true
	case p.waiting.IsZero() && p.owes(dataplane, changes):
		p.waiting = now
	}
	if follows && dataplane.Since.IsZero() {
		p.served = changes
	}
}

// owes reports whether something is owed by a dataplane that does not follow: it is away,
// or is sent everything again, or may not write. What was confirmed before is in the kernel,
// save of one whose work ends with its process.
func (p *progress) owes(dataplane Dataplane, changes track.Changes) bool {
	return !p.ready || dataplane.Mortal || dataplane.NoWriter != "" || dataplane.Failure != "" || changes != p.served
}

// confirm notes when something was confirmed. A family that an update was not about is
// as up to date as the others.
func (p *progress) confirm(families []sdk.Family, now time.Time) {
	p.confirmed = now
	for _, f := range families {
		if !slices.Contains(p.families, f) {
			p.families = append(p.families, f)
		}
	}
}
