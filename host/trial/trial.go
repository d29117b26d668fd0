// SPDX-License-Identifier: Apache-2.0

/*
Package trial watches for a time whether a node is served as it should be, so that a rollout
can stop at the first one that is not, before it takes the next. It asks what everyone may: the
metrics of the host, and new connections to frontends. Where it fails is decided by a pure
function over samples (trial.go); what is sampled is read in sample.go.
*/
package trial

import (
	"fmt"
	"time"
)

// Limits are what a node has to keep to.
type Limits struct {
	For      time.Duration // how long it has to be well
	Begin    time.Duration // how long it may take until it is well for the first time
	Grace    time.Duration // how long it may be other than well then, at a stretch
	Failures int           // how many connections may fail in all
}

// A Sample is what was seen of a node at one time.
type Sample struct {
	At       time.Time
	Err      error   // the metrics could not be read, so the next three say nothing
	Healthy  bool    // pointsman_healthy: nothing that is owed to the node has waited for too long
	Ready    bool    // pointsman_ready: the dataplane serves, and was sent everything
	Unserved int     // pointsman_unserved, of what the dataplane is the reason for
	Tried    int     // connections that were tried
	Failed   []error // of these, why each that failed did
}

// unwell returns what is wrong with the host and its dataplane; empty where nothing is.
func (s Sample) unwell() string {
	switch {
	case s.Err != nil:
		return s.Err.Error()
	case !s.Healthy:
		return "pointsman_healthy is 0: something that is owed to the node has waited for too long"
	case !s.Ready:
		return "pointsman_ready is 0: the dataplane does not serve, or not all that it should"
	}
	return ""
}

// A Trial is that of one node. Its methods are for one goroutine.
type Trial struct {
	limits   Limits
	started  time.Time
	well     time.Time // since when it is measured: it was well for the first time; zero before
	failing  time.Time // since when something is wrong without a break; zero: nothing is
	unserved int       // what was not served when it was well for the first time
	tried    int
	failed   int
}

// New returns a trial that starts now.
func New(l Limits, now time.Time) *Trial { return &Trial{limits: l, started: now} }

// Add takes the next sample. It is over when the node was well for long enough, with a nil error,
// or when it was not, and the error says why. Samples come in the order of their times.
func (t *Trial) Add(s Sample) (over bool, err error) {
	wrong := s.unwell()
	if t.well.IsZero() {
		return t.begin(s, wrong)
	}
	t.tried += s.Tried
	t.failed += len(s.Failed)
	if t.failed > t.limits.Failures {
		return true, fmt.Errorf("%d of %d new connections failed, and %d may: %w", t.failed, t.tried, t.limits.Failures, s.Failed[len(s.Failed)-1])
	}
	if wrong == "" && s.Unserved > t.unserved {
		wrong = fmt.Sprintf("pointsman_unserved rose from %d to %d: the dataplane could not serve these Services", t.unserved, s.Unserved)
	}
	switch {
	case wrong == "":
		t.failing = time.Time{}
	case t.failing.IsZero():
		t.failing = s.At
	case s.At.Sub(t.failing) >= t.limits.Grace:
		return true, fmt.Errorf("for %v %s", s.At.Sub(t.failing).Round(time.Second), wrong)
	}
	return t.failing.IsZero() && s.At.Sub(t.well) >= t.limits.For, nil
}

// begin waits for the first sample of a node that is well.
func (t *Trial) begin(s Sample, wrong string) (over bool, err error) {
	switch {
	case wrong == "":
		t.well, t.unserved = s.At, s.Unserved
	case s.At.Sub(t.started) >= t.limits.Begin:
		return true, fmt.Errorf("it was not well within %v: %s", t.limits.Begin, wrong)
	}
	return false, nil
}

// String says what was counted.
func (t *Trial) String() string {
	return fmt.Sprintf("%d of %d new connections failed", t.failed, t.tried)
}
