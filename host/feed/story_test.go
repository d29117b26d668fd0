// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// A story is a feed between a tracker and a fake dataplane that the test controls. It records events, one per line:
// "14s sync 2" happened 14 s after the start. It runs in a bubble of testing/synctest, so the test controls the time.
type story struct {
	t     *testing.T
	start time.Time
	feed  *Feed
	gone  chan struct{}
	ended chan error

	answers chan answer // results of the next Syncs

	tracker *track.Tracker
	bit     uint8

	mu    sync.Mutex // guards lines
	lines []string
}

type answer struct {
	result sdk.Result
	err    error
}

// fails answers that the Service failed.
func fails(err error) answer {
	name := sdk.Name{Namespace: "ns", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4}
	return answer{result: sdk.Result{Failed: []sdk.Failure{{Name: name, Err: err}}}}
}

// inBubble runs a story in a bubble.
func inBubble(t *testing.T, s Settings, play func(t *testing.T, y *story)) {
	synctest.Test(t, func(t *testing.T) { play(t, begin(t, s)) })
}

func begin(t *testing.T, s Settings) *story {
	y := &story{
		t: t, start: time.Now(), gone: make(chan struct{}), ended: make(chan error, 1),
		answers: make(chan answer, 10), tracker: track.New(nil),
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	svc.Spec = corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80}}}
	y.tracker.SetService(svc)
	y.tracker.Synced()
	s.Gone = y.gone
	s.Acked = func(a Acked) { y.say("acked %d after %s", a.Update.To, a.Took) }
	s.Failed = func(err error) { y.say("failed: %v", err) }
	y.feed = New(y.tracker.Cursor(sdk.Description{Features: sdk.Features}), y, s)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); y.ended <- y.feed.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ran })
	return y
}

func (y *story) say(format string, args ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.lines = append(y.lines, fmt.Sprintf("%s ", time.Since(y.start))+fmt.Sprintf(format, args...))
}

// change makes an update: another node.
func (y *story) change() {
	y.bit++
	y.tracker.Configure(track.Facts{MasqueradeBit: y.bit})
}

// Sync implements Syncer.
func (y *story) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	what := "sync"
	if u.Full {
		what = "full"
	}
	y.say("%s %d", what, u.To)
	select {
	case a := <-y.answers:
		return a.result, a.err
	case <-ctx.Done():
		return sdk.Result{}, ctx.Err()
	}
}

// until waits until nothing more happens, and checks the end of the last line.
func (y *story) until(line string) {
	y.t.Helper()
	synctest.Wait()
	if so := y.transcript(); !strings.HasSuffix(so, line) {
		y.t.Fatalf("%q is not the last event:\n%s", line, so)
	}
}

func (y *story) transcript() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return strings.Join(y.lines, "\n")
}
