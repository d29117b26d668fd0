// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/pointsman/pointsman/host/track"
)

// Events of thousands of nodes end in one etcd, so one node writes few: so many at
// once, and from then on one in each interval. What is too much is left out: the
// log has it all.
const (
	eventBurst    = 20
	eventInterval = 15 * time.Second
	eventTimeout  = 10 * time.Second
	maxNote       = 1024 // bytes, the API's own bound
	action        = "Serve"
)

// EventsForbidden is the reason of the notice that events may not be written.
const EventsForbidden = "EventsForbidden"

// Events writes notices to the API server, where `kubectl describe` shows them
// with the object they are about.
type Events struct {
	client *Client
	node   string // what an event without another object is about
	report func(track.Notice)
	queue  chan track.Notice
}

// NewEvents writes to the API server of client, for the node of that name. Nothing is written
// before Run.
func NewEvents(client *Client, node string, report func(track.Notice)) *Events {
	return &Events{client: client, node: node, report: report, queue: make(chan track.Notice, eventBurst)}
}

// Write has n written soon, or not at all: it never waits. It is safe for
// concurrent use.
func (e *Events) Write(n track.Notice) {
	select {
	case e.queue <- n:
	default:
	}
}

// Run writes until ctx ends.
func (e *Events) Run(ctx context.Context) error {
	allowance := newAllowance(clock.RealClock{})
	forbidden := false
	for {
		select {
		case n := <-e.queue:
			if !allowance.TryAccept() {
				continue
			}
			err := e.write(ctx, n)
			if denied := apierrors.IsForbidden(err); denied && !forbidden {
				forbidden = true
				e.report(track.Notice{Warning: true, Reason: EventsForbidden, Object: e.node, Message: "we may not write events, so they are in the log only: grant create on events in the group events.k8s.io, as configs/kubernetes/rbac.yaml does"})
			} else if err == nil {
				forbidden = false
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *Events) write(ctx context.Context, n track.Notice) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	return e.client.CreateEvent(ctx, e.event(n, time.Now()))
}

// event returns n as the API wants it.
func (e *Events) event(n track.Notice, now time.Time) *eventsv1.Event {
	about := e.about(n.Object)
	namespace := cmp.Or(about.Namespace, metav1.NamespaceDefault) // of what has none, by convention
	kind := corev1.EventTypeNormal
	if n.Warning {
		kind = corev1.EventTypeWarning
	}
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano())},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: "pointsman",
		ReportingInstance:   e.node,
		Action:              action,
		Reason:              n.Reason,
		Regarding:           about,
		Note:                note(n, about),
		Type:                kind,
	}
}

// about returns the object that text names: "ns/name", a Service's port as it prints
// itself ("ns/name:http/tcp4"), or "EndpointSlice ns/name". All else is this
// node's.
func (e *Events) about(text string) corev1.ObjectReference {
	kind, version := "Service", "v1"
	rest := text
	if name, ok := strings.CutPrefix(text, "EndpointSlice "); ok {
		kind, version, rest = "EndpointSlice", "discovery.k8s.io/v1", name
	}
	namespace, name, ok := strings.Cut(rest, "/")
	name, _, _ = strings.Cut(name, "/")
	name, _, _ = strings.Cut(name, ":")
	if !ok || namespace == "" || name == "" || strings.ContainsAny(namespace, " :.") {
		return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.node, UID: types.UID(e.node)}
	}
	return corev1.ObjectReference{APIVersion: version, Kind: kind, Namespace: namespace, Name: name}
}

// note returns the message, which also names what the event is about where the
// reference cannot.
func note(n track.Notice, about corev1.ObjectReference) string {
	text := n.Message
	if n.Object != "" && n.Object != about.Name && n.Object != about.Namespace+"/"+about.Name && !strings.HasPrefix(n.Object, "EndpointSlice ") {
		text = n.Object + ": " + text
	}
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote-len("…")], "") + "…"
	}
	return text
}

// newAllowance says how many events may be written.
func newAllowance(c clock.PassiveClock) flowcontrol.PassiveRateLimiter {
	return flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(float32(1/eventInterval.Seconds()), eventBurst, c)
}
