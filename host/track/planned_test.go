// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// What a dataplane only planned is not handed out again, and is not served until the
// dataplane says so.
func TestPlannedIsNotServed(t *testing.T) {
	tracker, c, _ := followed(t)
	served := c.Status().Served
	oneEndpoint(tracker)
	u, _ := c.Next()
	c.Planned(u.To, nil)
	s := c.Status()
	if s.Acked != u.To || s.Served != served || s.Pending != 0 || s.Since.IsZero() {
		t.Errorf("planned: %+v, want revision %d received and %d served, and that it is owed since then", s, u.To, served)
	}
	want(t, "by itself", handedOut(c), "nothing")

	c.Served(u.To-1, nil) // of before
	if s := c.Status(); s.Served != served {
		t.Errorf("an older revision counts as served: %+v", s)
	}
	c.Served(u.To, nil)
	if s := c.Status(); s.Served != u.To || !s.Since.IsZero() {
		t.Errorf("served: %+v", s)
	}
	bothEndpoints(tracker)
	want(t, "a change after it", handedOut(c), setBoth)
	if s := c.Status(); s.Served != s.Acked {
		t.Errorf("an update that is not planned is served: %+v", s)
	}
}

// What fails when the plan is written is owed like any failure, and offered again although
// its value was confirmed; what was handed out since is confirmed by its own answer.
func TestFailsWhenThePlanIsWritten(t *testing.T) {
	tracker, c, notices := followed(t)
	oneEndpoint(tracker)
	u, _ := c.Next()
	c.Planned(u.To, nil)
	failure := sdk.Failure{Name: web, Err: errors.New("no memory")}
	for range 2 { // a report is read each second
		c.Served(u.To, []sdk.Failure{failure, {Name: sdk.Name{Service: "unknown"}, Err: failure.Err}})
	}
	if s := c.Status(); s.Served != u.To || len(s.Failed) != 1 || s.Failed[0].Name != web {
		t.Errorf("it is %+v", s)
	}
	if got := c.Confirmed(); len(got) != 0 || c.Wanted() != 0 {
		t.Errorf("it counts as confirmed: %v, %d wanted", got, c.Wanted())
	}
	want(t, "by itself", handedOut(c), "nothing")
	c.Retry()
	u, _ = c.Next()
	want(t, "with Retry", text(u), setFirst)
	c.Served(u.From, []sdk.Failure{failure}) // read before that was answered
	c.Ack(u.To, nil)
	if s := c.Status(); len(s.Failed) != 0 || c.Wanted() != 1 {
		t.Errorf("then it is %+v, %d wanted", s, c.Wanted())
	}
	if got := reasons(*notices); !slices.Equal(got, []string{"ServiceFailed ns1/web:http/tcp4", "ServiceServed ns1/web:http/tcp4"}) {
		t.Errorf("reported %q", got)
	}
}

// An update that is written together with earlier ones names what failed of all.
func TestAckNamesEarlierFailures(t *testing.T) {
	tracker, c, _ := followed(t)
	oneEndpoint(tracker)
	u, _ := c.Next()
	c.Planned(u.To, nil)
	tracker.SetService(newService("api", "172.30.0.2"))
	u, _ = c.Next()
	c.Ack(u.To, []sdk.Failure{{Name: web, Err: errors.New("no memory")}})
	if s := c.Status(); s.Served != u.To || len(s.Failed) != 1 || s.Failed[0].Name != web {
		t.Errorf("it is %+v", s)
	}
}

// A session that begins anew owes everything, whatever the one before says.
func TestServedOfAnotherSession(t *testing.T) {
	_, c, _ := followed(t)
	at := c.Status().Acked
	c.Resync()
	c.Served(at, []sdk.Failure{{Name: web, Err: errors.New("no memory")}})
	if s := c.Status(); len(s.Failed) != 0 {
		t.Errorf("it is %+v", s)
	}
}

// TestPendingWhileFull: until everything was confirmed, everything is pending, but for what is
// kept from the dataplane; and again once everything is to be sent again.
func TestPendingWhileFull(t *testing.T) {
	tracker, _ := newTracker()
	tracker.SetService(newService("web", "172.30.0.1"))
	tracker.SetService(newService("api", "172.30.0.2"))
	c := tracker.Cursor(everything)
	pending := func(when string, want int) {
		t.Helper()
		if s := c.Status(); s.Pending != want {
			t.Errorf("%s: %d pending, want %d", when, s.Pending, want)
		}
	}
	pending("at the beginning", 2)
	handedOut(c)
	pending("confirmed", 0)
	c.Resync()
	pending("everything is to be sent again", 2)
}
