// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"maps"
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
	"github.com/pointsman/pointsman/host/services"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// TestUnserved checks a Service for each reason why Services are not served. The metric counts the Services that status
// lists.
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
	listed := make(map[string]int)
	set := newSet(Settings{Tracker: tracker}, p)
	for _, u := range (services.Queries{Tracker: tracker, Serving: set.Main}).Unserved() {
		got = append(got, u.Service+" "+u.Reason+": "+u.Why)
		listed[u.Reason]++
	}
	if counted := scrape(t, set); !maps.Equal(counted, listed) {
		t.Errorf("the metric counts %v, and status lists %v", counted, listed)
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

// scrape returns pointsman_unserved of a set, by reason.
func scrape(t *testing.T, set *Set) map[string]int {
	t.Helper()
	answer := httptest.NewRecorder()
	health.New(health.Settings{
		Mode: set.Mode, Period: time.Minute, Tracker: set.Tracker, Dataplanes: set.Health, Report: func(track.Notice) {},
		Events: func() map[string]int { return nil }, Warnings: func() map[string]int { return nil }, Fault: func() string { return "" },
	}).Endpoints().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	count := make(map[string]int)
	for _, m := range regexp.MustCompile(`(?m)^pointsman_unserved{plugin="acme",why="(\w+)"} (\d+)$`).FindAllStringSubmatch(answer.Body.String(), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		count[m[1]] = n
	}
	return count
}
