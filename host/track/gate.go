// SPDX-License-Identifier: Apache-2.0

package track

import (
	"slices"

	"github.com/pointsman/pointsman/host/reach"
)

// A Notice is one thing that the operator should know.
type Notice struct {
	Warning bool
	Reason  string // one word, such as FrontendTaken
	Object  string // "namespace/name", or a dataplane's name
	Message string
}

// The reasons of the tracker's own notices; package reach has more.
const (
	FrontendTaken   = "FrontendTaken"   // another Service has that address and port (W004)
	NodeDeleted     = "NodeDeleted"     // this node's Node object was deleted; its last addresses and labels stay in force. If the node is not being removed, find out who deleted it
	SliceNotJoined  = "SliceNotJoined"  // an EndpointSlice is not used, because it lacks the label `kubernetes.io/service-name`
	ServiceFailed   = "ServiceFailed"   // a dataplane could not serve the Service; it is tried again (W004)
	ServiceRefused  = "ServiceRefused"  // a dataplane cannot serve the Service (W004)
	ServiceServed   = "ServiceServed"   // a Service that failed before is served
	ServiceWithheld = "ServiceWithheld" // a dataplane lacks a feature that the Service needs (W004)
)

// unlock unlocks the mutex, and then reports the notices: the function that is
// called may call the tracker.
func (t *Tracker) unlock() {
	notices := t.notices
	t.notices = nil
	t.mu.Unlock()
	if t.report == nil {
		return
	}
	for _, n := range notices {
		t.report(n)
	}
}

func (t *Tracker) warn(reason, object, message string) {
	t.notices = append(t.notices, Notice{Warning: true, Reason: reason, Object: object, Message: message})
}

// warnNew reports the problems that were not there before.
func (t *Tracker) warnNew(object string, before, after []reach.Problem) {
	for _, p := range after {
		if !slices.Contains(before, p) {
			t.warn(p.Reason, object, p.Message)
		}
	}
}

// Freeze lets no change in until thaw is called: callers of SetService and the like
// wait. What was there before can be asked and handed out. So cursors that have
// nothing pending have all confirmed the same.
func (t *Tracker) Freeze() (thaw func()) {
	t.gate.Lock()
	t.mu.Lock() // a change that came in before is complete
	defer t.mu.Unlock()
	return t.gate.Unlock
}

// Open reports whether changes are let in now.
func (t *Tracker) Open() bool {
	open := t.gate.TryRLock()
	if open {
		t.gate.RUnlock()
	}
	return open
}

// admit is how a change comes in; unlock is how it leaves. The gate is not held in
// between: unlock reports, and what it calls may make a change of its own.
func (t *Tracker) admit() {
	t.gate.RLock()
	defer t.gate.RUnlock()
	t.mu.Lock()
}
