// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

// TestRates are counted only between what belongs together.
func TestRates(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	look := func(second int, change func(*admin.Activity)) admin.Activity {
		taken := uint64(100 * second)
		a := admin.Activity{
			At: began.Add(time.Duration(second) * time.Second), Began: began, Mode: "userspace",
			Dataplane: admin.Plugin{Name: "userspace", PID: 7, Restarts: 1, Memory: 3 << 20},
			Changes:   uint64(10 * second), Updates: uint64(second), SyncSeconds: 0.002 * float64(second), Connections: &taken,
			Sync: admin.Sync{TookMS: 1.5, Pending: 2},
		}
		change(&a)
		return a
	}
	same := func(*admin.Activity) {}
	for what, c := range map[string]struct {
		before, now admin.Activity
		want        string // connections, changes, updates, milliseconds for each
	}{
		"two seconds":          {look(10, same), look(12, same), "100.0 10.0 1.0 2.0 ms for each update"},
		"nothing happened":     {look(10, same), look(10, func(a *admin.Activity) { a.At = began.Add(time.Minute) }), "0.0 0.0 0.0 -"},
		"one look":             {look(10, same), look(10, same), "- - - -"},
		"another host":         {look(10, same), look(12, func(a *admin.Activity) { a.Began = began.Add(time.Second) }), "- - - -"},
		"a swap":               {look(10, same), look(12, func(a *admin.Activity) { a.Dataplane.Name = "nftables" }), "- 10.0 - -"},
		"another process":      {look(10, same), look(12, func(a *admin.Activity) { a.Dataplane.PID = 8 }), "- 10.0 1.0 2.0 ms for each update"},
		"a mode begun anew":    {look(10, same), look(12, func(a *admin.Activity) { a.Updates, a.SyncSeconds = 1, 0.01 }), "100.0 10.0 - -"},
		"it counts none":       {look(10, same), look(12, func(a *admin.Activity) { a.Connections = nil }), "- 10.0 1.0 2.0 ms for each update"},
		"it has begun to":      {look(10, func(a *admin.Activity) { a.Connections = nil }), look(12, same), "- 10.0 1.0 2.0 ms for each update"},
		"the clock was turned": {look(12, same), look(10, same), "- - - -"},
	} {
		r := ratesBetween(c.before, c.now)
		if got := fmt.Sprint(rateText(r.Connections), " ", rateText(r.Changes), " ", rateText(r.Updates), " ", eachText(r.SyncMS)); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		if r.PID != c.now.Dataplane.PID || r.Restarts != 1 || r.MemoryBytes != 3<<20 || r.Pending != 2 || r.LastSyncMS != 1.5 {
			t.Errorf("%s: what is so now: %+v", what, r)
		}
	}
}

// TestScreen has the host's last answer, and why there is no newer one.
func TestScreen(t *testing.T) {
	r := rates{Node: "n1", Mode: "ipvs", Dataplane: "ipvs", State: "waiting", Slowest: []admin.Wait{{Service: "shop/web/tcp4", State: "pending", Seconds: 2.345}}}
	got := strings.Join(screen(r, errors.New("no host\nanswers"), false), "\n")
	for _, want := range []string{
		"(q ends it): no host; answers\n\nnode ",
		"\ndataplane      ipvs is waiting, pid -, 0 restarts, memory -\n",
		"\nconnections/s  -\n",
		"\n\nSLOWEST        STATE    WAITED  SINCE\nshop/web/tcp4  pending  2.3s    ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the screen is\n%s\nwant %q in it", got, want)
		}
	}
}
