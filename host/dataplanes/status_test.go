// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// TestUnserved has a Service for each reason why one is not served.
func TestUnserved(t *testing.T) {
	tracker := track.New(nil)
	for i, name := range []string{"failed", "phone", "refused", "served"} {
		protocol := corev1.ProtocolTCP
		if name == "phone" {
			protocol = corev1.ProtocolSCTP
		}
		tracker.SetService(clusterService(name, netip.AddrFrom4([4]byte{172, 30, 0, byte(i)}), protocol))
	}
	tracker.SetService(clusterService("second", netip.AddrFrom4([4]byte{172, 30, 0, 3}), corev1.ProtocolTCP))
	badly := clusterService("wrong", netip.AddrFrom4([4]byte{172, 30, 0, 6}), corev1.ProtocolTCP)
	badly.Spec.ExternalIPs = []string{"127.0.0.1"}
	tracker.SetService(badly)
	tracker.Synced()
	p := filled(t, "acme", tracker, sdk.FeatureIPv4)
	p.session.cursor.Resync()
	u, _ := p.session.cursor.Next()
	p.session.cursor.Ack(u.To, []sdk.Failure{{Name: service("failed"), Err: errors.New("in use")}, {Name: service("refused"), Err: &sdk.Refusal{Why: "not here"}}})
	var got []string
	for _, u := range newSet(Settings{Tracker: tracker}, p).Unserved() {
		got = append(got, u.Service+" "+u.Reason+": "+u.Why)
	}
	want := []string{
		"shop/failed/tcp4 failed: in use",
		"shop/phone/sctp4 withheld: the dataplane does not support sctp",
		"shop/refused/tcp4 refused: not here",
		"shop/served conflict: cluster-ip 172.30.0.3:80 belongs to Service shop/second; it is not served for this one",
		"shop/wrong invalid: external IP 127.0.0.1 is loopback; it is not served",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestUnservedAgrees holds, in any state, pointsman_unserved to what status lists: as many of
// each reason.
func TestUnservedAgrees(t *testing.T) {
	tracker := track.New(nil)
	tracker.Synced()
	p := filled(t, "acme", tracker, sdk.FeatureIPv4)
	set := newSet(Settings{Tracker: tracker}, p)
	scrape := scraped(t, set)
	r := rand.New(rand.NewPCG(17, 4))
	seen := make(map[string]bool)
	for step := range 300 {
		disturb(r, tracker, p.session.cursor)
		listed := make(map[string]int)
		for _, u := range set.Unserved() {
			listed[u.Reason]++
			seen[u.Reason] = true
		}
		counted := scrape()
		for reason, n := range listed {
			if counted[reason] != n {
				t.Fatalf("step %d: status lists %v, and the metric counts %v", step, listed, counted)
			}
		}
		for reason, n := range counted {
			if listed[reason] != n {
				t.Fatalf("step %d: the metric counts %v, and status lists %v", step, counted, listed)
			}
		}
	}
	if len(seen) != 5 {
		t.Errorf("only %v were ever seen", seen)
	}
}

// disturb changes a Service, or has the dataplane answer as it likes.
func disturb(r *rand.Rand, tracker *track.Tracker, c *track.Cursor) {
	pick := func() string { return fmt.Sprint("s", r.IntN(8)) }
	switch r.IntN(4) {
	case 0:
		tracker.DeleteService("shop", pick())
	case 1, 2:
		svc := clusterService(pick(), netip.AddrFrom4([4]byte{172, 30, 0, byte(r.IntN(5))}), []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolSCTP}[r.IntN(2)])
		if r.IntN(3) == 0 {
			svc.Spec.ExternalIPs = []string{"127.0.0.1", "192.0.2.1"}
		}
		tracker.SetService(svc)
	case 3:
		c.Resync()
	}
	u, ok := c.Next()
	if !ok || r.IntN(4) == 0 {
		return // it has not answered yet
	}
	var failures []sdk.Failure
	for _, svc := range u.Set {
		if err := []error{nil, errors.New("no room"), &sdk.Refusal{Why: "not here"}}[r.IntN(3)]; err != nil {
			failures = append(failures, sdk.Failure{Name: svc.Name, Err: err})
		}
	}
	c.Ack(u.To, failures)
}

// scraped returns a function that reads pointsman_unserved of a set.
func scraped(t *testing.T, set *Set) func() map[string]int {
	t.Helper()
	metrics := health.New(health.Settings{
		Mode: set.Mode, Period: time.Minute, Tracker: set.Tracker, Dataplanes: set.Health, Report: func(track.Notice) {},
		Events: func() map[string]int { return nil }, Fault: func() string { return "" },
	}).Endpoints()
	line := regexp.MustCompile(`(?m)^pointsman_unserved{plugin="acme",why="(\w+)"} (\d+)$`)
	return func() map[string]int {
		answer := httptest.NewRecorder()
		metrics.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		count := make(map[string]int)
		for _, m := range line.FindAllStringSubmatch(answer.Body.String(), -1) {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			count[m[1]] = n
		}
		if len(count) != 5 {
			t.Fatalf("%v is counted of\n%s", count, answer.Body)
		}
		return count
	}
}
