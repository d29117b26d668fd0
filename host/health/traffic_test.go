// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestTrafficIsBounded publishes twenty ports of a thousand, the busiest, and the sum of all others.
func TestTrafficIsBounded(t *testing.T) {
	var all []Busy
	for i := range 1000 {
		all = append(all, Busy{Service: fmt.Sprintf("shop/s%d/tcp4", i), Connections: float64(i * 7919 % 1000), Bytes: i%2 == 1, In: 1, Out: 2})
	}
	families, err := trafficOf(all).Gather()
	if err != nil || len(families) != 2 {
		t.Fatalf("%v, %v", families, err)
	}
	bytes, connections := families[0], families[1]
	if n := len(connections.GetMetric()); n != mostBusy+1 {
		t.Errorf("%d series of connections", n)
	}
	if n := len(bytes.GetMetric()); n > 2*(mostBusy+1) {
		t.Errorf("%d series of bytes", n)
	}
	sum := 0.0
	for i := range 1000 - mostBusy {
		sum += float64(i)
	}
	if text := series(connections); !strings.Contains(text, fmt.Sprintf("service=other %g", sum)) || !strings.Contains(text, "tcp4 999;") || !strings.Contains(text, "tcp4 980") {
		t.Errorf("connections: %s", text)
	}
	few, err := trafficOf(all[:3]).Gather()
	if err != nil || strings.Contains(series(few[1]), "other") || len(few[1].GetMetric()) != 3 {
		t.Errorf("of three: %v, %v", few, err)
	}
}

// TestTrafficIsAsked at its own path alone, and says why there is none.
func TestTrafficIsAsked(t *testing.T) {
	asked := 0
	var fails error
	h := newHarness(func(s *Settings) {
		s.Traffic = func(context.Context) ([]Busy, error) {
			asked++
			return []Busy{{Service: "shop/web/tcp4", Connections: 2}}, fails
		}
	}).Endpoints()
	if w := ask(h, "GET", "/metrics", ""); w.Code != http.StatusOK || asked != 0 || strings.Contains(w.Body.String(), "per_second") {
		t.Errorf("a scrape of the others asks for it %d times", asked)
	}
	if w := ask(h, "GET", "/metrics/traffic", ""); w.Code != http.StatusOK || asked != 1 || !strings.Contains(w.Body.String(), "pointsman_service_connections_per_second{service=\"shop/web/tcp4\"} 2\n") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	fails = errors.New("acme does not count")
	if w := ask(h, "GET", "/metrics/traffic", ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "acme does not count") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}
