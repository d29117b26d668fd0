// SPDX-License-Identifier: Apache-2.0

package track

import (
	"slices"

	"github.com/pointsman/pointsman/host/reach"
)

// A Notice is an event that the operator should know about.
type Notice struct {
	Warning bool
	Reason  string // one word, such as FrontendTaken
	Object  string // "namespace/name", or a dataplane's name
	Message string
}

// Reasons of the tracker's notices. Package reach defines more.
const (
	FrontendTaken   = "FrontendTaken"   // another Service has that address and port (W004)
	NodeDeleted     = "NodeDeleted"     // this node's Node object was deleted; its last addresses and labels stay in force. If the node is not being removed, find out who deleted it
	SliceNotJoined  = "SliceNotJoined"  // an EndpointSlice is not used, because it lacks the label `kubernetes.io/service-name`
	ServiceFailed   = "ServiceFailed"   // a dataplane could not serve the Service; it is tried again (W004)
	ServiceRefused  = "ServiceRefused"  // a dataplane cannot serve the Service (W004)
	ServiceServed   = "ServiceServed"   // a Service that failed before is served
	ServiceWithheld = "ServiceWithheld" // a dataplane lacks a feature that the Service needs (W004)
)

// unlock releases the mutex and then reports the collected notices. It does so in this order
// because report may call the tracker.
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

// warnNew adds a notice for each problem in after that is not in before.
func (t *Tracker) warnNew(object string, before, after []reach.Problem) {
	for _, p := range after {
		if !slices.Contains(before, p) {
			t.warn(p.Reason, object, p.Message)
		}
	}
}

// Freeze blocks changes until thaw is called: SetService, SetSlice and so on wait. Reads and
// Next still work on the current state. So while the tracker is frozen, all cursors that have
// nothing pending have confirmed the same state. A swap depends on that.
func (t *Tracker) Freeze() (thaw func()) {
	t.gate.Lock()
	t.mu.Lock() // wait until a change in progress is complete
	defer t.mu.Unlock()
	return t.gate.Unlock
}

// Open reports whether changes are accepted, that is, the tracker is not frozen.
func (t *Tracker) Open() bool {
	open := t.gate.TryRLock()
	if open {
		t.gate.RUnlock()
	}
	return open
}

// lockForChange starts a change; unlock ends it. It waits while the tracker is frozen but does not keep
// the gate locked until unlock, because unlock calls report, which may make another change.
func (t *Tracker) lockForChange() {
	t.gate.RLock()
	defer t.gate.RUnlock()
	t.mu.Lock()
}
