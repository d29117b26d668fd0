// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestEvent converts notices.
func TestEvent(t *testing.T) {
	e := NewEvents(clientOf(fake.NewClientset()), "n1", func(track.Notice) {})
	for _, test := range []struct{ object, want string }{
		{"ns1/web", "Service ns1/web in ns1: m"},
		{"ns1/web:http/tcp4", "Service ns1/web in ns1: ns1/web:http/tcp4: m"},
		{"ns1/web/udp6", "Service ns1/web in ns1: ns1/web/udp6: m"},
		{"EndpointSlice ns1/web-abc", "EndpointSlice ns1/web-abc in ns1: m"},
		{"iptables", "Node /n1 in default: iptables: m"},
		{"n1", "Node /n1 in default: m"},
		{"", "Node /n1 in default: m"},
		{"/etc/pointsman/services", "Node /n1 in default: /etc/pointsman/services: m"},
		{"unix:///run/x.sock", "Node /n1 in default: unix:///run/x.sock: m"},
	} {
		got := e.event(track.Notice{Warning: true, Reason: "R", Object: test.object, Message: "m"}, time.Unix(1, 0))
		about := got.Regarding
		if text := fmt.Sprintf("%s %s/%s in %s: %s", about.Kind, about.Namespace, about.Name, got.Namespace, got.Note); text != test.want {
			t.Errorf("%q becomes %q, want %q", test.object, text, test.want)
		}
		if got.Type != "Warning" || got.Reason != "R" || got.Action == "" || !strings.HasPrefix(got.Name, about.Name+".") {
			t.Errorf("%q becomes %+v", test.object, got)
		}
	}
	long := e.event(track.Notice{Message: strings.Repeat("ä", maxNote)}, time.Unix(1, 0))
	if len(long.Note) > maxNote || !strings.HasSuffix(long.Note, "…") || long.Type != "Normal" {
		t.Errorf("a long message becomes %d bytes, %s", len(long.Note), long.Type)
	}
}

// TestEvents checks that an event is written, and that a refusal is reported once.
func TestEvents(t *testing.T) {
	client := fake.NewClientset()
	notices := make(chan track.Notice, eventBurst)
	e := NewEvents(clientOf(client), "n1", func(n track.Notice) { notices <- n })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	defer func() { cancel(); <-ended }()

	e.Write(track.Notice{Reason: "Starting", Object: "n1", Message: "hello"})
	first := waitForEvents(t, client, 1)[0]
	if first.Reason != "Starting" || first.Note != "hello" || first.ReportingController != "pointsman" {
		t.Errorf("wrote %+v", first)
	}

	tried := make(chan struct{}, eventBurst)
	client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		tried <- struct{}{}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no role"))
	})
	for range 3 {
		e.Write(track.Notice{Reason: "R"})
	}
	for range 3 {
		<-tried
	}
	if n := <-notices; n.Reason != EventsForbidden || !strings.Contains(n.Message, "rbac.yaml") {
		t.Errorf("reported %+v", n)
	}
	cancel()
	<-ended
	ended <- nil
	if len(notices) > 0 {
		t.Errorf("reported again: %+v", <-notices)
	}
}

// TestEventLimit checks the limit of events, and that Write never waits.
func TestEventLimit(t *testing.T) {
	client := fake.NewClientset()
	e := NewEvents(clientOf(client), "n1", func(track.Notice) {})
	for range 3 * eventBurst {
		e.Write(track.Notice{Reason: "Before"}) // Run has not started
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- e.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	waitForEvents(t, client, eventBurst)
	for range 3 * eventBurst {
		e.Write(track.Notice{Reason: "After"})
		eventually.True(t, "the queue is empty", func() bool { return len(e.queue) == 0 })
	}
	most := eventBurst + int(time.Since(began)/eventInterval) + 1 // Run may be writing one
	if got := len(waitForEvents(t, client, eventBurst)); got > most {
		t.Errorf("%d events were written, want at most %d", got, most)
	}
}

func waitForEvents(t *testing.T, client *fake.Clientset, n int) []eventsv1.Event {
	t.Helper()
	var list *eventsv1.EventList
	eventually.Succeeds(t, fmt.Sprintf("there are %d events", n), func() (err error) {
		list, err = client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) < n {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
	return list.Items
}
