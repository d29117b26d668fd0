// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/pointsman/pointsman/host/track"
)

// Limits of events. The events of thousands of nodes are stored in one etcd, so each node writes a burst and then one
// event per interval. Other events are only logged.
const (
	eventBurst    = 20
	eventInterval = 15 * time.Second
	maxNote       = 1024 // bytes; the limit of the API
)

const EventsForbidden = "EventsForbidden" // the host may not write events, which are in the log only: grant `create` on `events`, as configs/kubernetes/rbac.yaml does

// Events writes notices to the API server. `kubectl describe` shows each with the object that it is about.
type Events struct {
	client *Client
	node   string // the node's name; its Node is the object of events without another object
	report func(track.Notice)
	queue  chan track.Notice
}

// NewEvents returns an Events for a node. It writes nothing before Run.
func NewEvents(client *Client, node string, report func(track.Notice)) *Events {
	return &Events{client: client, node: node, report: report, queue: make(chan track.Notice, eventBurst)}
}

// Write queues n, or drops it if the queue is full: it never waits. It is safe for concurrent use.
func (e *Events) Write(n track.Notice) {
	select {
	case e.queue <- n:
	default:
	}
}

// Run writes until ctx ends.
func (e *Events) Run(ctx context.Context) error {
	allowance := flowcontrol.NewTokenBucketPassiveRateLimiter(float32(1/eventInterval.Seconds()), eventBurst)
	forbidden := false
	for {
		select {
		case n := <-e.queue:
			if !allowance.TryAccept() {
				continue
			}
			timed, cancel := context.WithTimeout(ctx, answerTimeout)
			err := e.client.CreateEvent(timed, e.event(n, time.Now()))
			cancel()
			if apierrors.IsForbidden(err) && !forbidden {
				e.report(track.Notice{Warning: true, Reason: EventsForbidden, Object: e.node, Message: "writing events is forbidden, so they are in the log only: grant create on events in the group events.k8s.io, as " + RoleFile + " does"})
			}
			forbidden = apierrors.IsForbidden(err) || forbidden && err != nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// event converts n to the API's form.
func (e *Events) event(n track.Notice, now time.Time) *eventsv1.Event {
	about, kind, text := e.about(n.Object), corev1.EventTypeNormal, n.Message
	if n.Warning {
		kind = corev1.EventTypeWarning
	}
	if n.Object != "" && n.Object != about.Name && n.Object != about.Namespace+"/"+about.Name && about.Kind != "EndpointSlice" {
		text = n.Object + ": " + text
	}
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote-len("…")], "") + "…"
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault), // by convention, for objects without a namespace
			Name:      fmt.Sprintf("%s.%x", about.Name, now.UnixNano()),
		},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: "pointsman",
		ReportingInstance:   e.node,
		Action:              "Serve",
		Reason:              n.Reason,
		Regarding:           about,
		Note:                text,
		Type:                kind,
	}
}

// objectName matches the text of a Notice that names an object with a namespace.
var objectName = regexp.MustCompile(`^(EndpointSlice )?([^/ :.]+)/([^/:]+)`)

// about returns the object that text names: "ns/name", a port of a Service as it prints itself ("ns/name:http/tcp4"),
// or "EndpointSlice ns/name". For any other text it returns this node.
func (e *Events) about(text string) corev1.ObjectReference {
	m := objectName.FindStringSubmatch(text)
	switch {
	case m == nil:
		return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.node, UID: types.UID(e.node)}
	case m[1] != "":
		return corev1.ObjectReference{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice", Namespace: m[2], Name: m[3]}
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: m[2], Name: m[3]}
}
