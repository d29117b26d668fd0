// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

func TestRingCountsWhatNobodyRead(t *testing.T) {
	r := newRing(4, 1<<20)
	reader := r.reader(0)
	put := func(from, to int) {
		for i := from; i < to; i++ {
			r.add(LogLine{Message: fmt.Sprint(i)})
		}
	}
	got := func(limit int) string {
		lines, _ := reader.next(limit)
		var b strings.Builder
		for _, l := range lines {
			fmt.Fprintf(&b, "%s/%d ", l.Message, l.Dropped)
		}
		return strings.TrimSpace(b.String())
	}
	put(0, 2)
	if s := got(9); s != "0/0 1/0" {
		t.Errorf("at first: %s", s)
	}
	put(2, 9)
	if s := got(2); s != "5/3 6/0" {
		t.Errorf("after a burst: %s", s)
	}
	if s := got(9); s != "7/0 8/0" {
		t.Errorf("the rest: %s", s)
	}
	if r.lost() != 3 {
		t.Errorf("%d lost; want 3", r.lost())
	}
	reader = r.reader(0)
	if s := got(1); s != "5/3" {
		t.Errorf("a second reader: %s", s)
	}
}

func TestRingIsBoundedInBytes(t *testing.T) {
	r := newRing(1000, 10_000)
	for range 500 {
		r.add(LogLine{Message: strings.Repeat("x", 900)})
	}
	if r.bytes > 10_000 || r.end-r.first < 5 {
		t.Errorf("%d lines of %d bytes are kept", r.end-r.first, r.bytes)
	}
}

func TestTheLogKeepsWhatItIsGiven(t *testing.T) {
	r := newRing(9, 1<<20)
	log := slog.New(newRingHandler(r, slog.LevelInfo))
	log.Debug("too fine")
	log.With("a", 1).WithGroup("g").With("b", 2).Warn("restored", "took", time.Second, slog.Group("h", "c", 3), slog.Any("e", fmt.Errorf("x y")))
	lines, _ := r.reader(0).next(9)
	if len(lines) != 1 {
		t.Fatalf("%d lines", len(lines))
	}
	line := decodeLine(encodeLine(lines[0]))
	if _, text, _ := strings.Cut(line.String(), " "); text != `WARN restored a=1 g.b=2 g.took=1s g.h.c=3 g.e="x y"` {
		t.Errorf("got %s", text)
	}
}

func TestPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // its clock costs no time
		gone := 0
		p := newPresence(func() time.Duration { return time.Minute }, func() { gone++ })
		p.connected()
		p.connected()
		p.disconnected()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if gone != 0 {
			t.Fatal("gone while a host is connected")
		}
		p.disconnected()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if gone != 1 {
			t.Fatalf("gone %d times without a host", gone)
		}
	})
}

// A kernel-mode plugin ends after a while without a host, a relay never.
func TestHostTimeout(t *testing.T) {
	if got := hostTimeoutOf(subjectDescription()); got != 10*time.Minute {
		t.Errorf("a dataplane in the kernel waits %s", got)
	}
	if got := hostTimeoutOf(relayDescription()); got != 0 {
		t.Errorf("a relay waits %s; want for good", got)
	}
}

// A relay whose host died before it gave it a role is found by no other host, and goes; one
// that has a role may have connections, and stays.
func TestARelayWithoutARoleEnds(t *testing.T) {
	for _, late := range []bool{false, true} { // the host dies while the role is set
		for _, role := range []sdk.Role{0, sdk.Standby, sdk.Active} {
			synctest.Test(t, func(t *testing.T) { // its clock costs no time
				s := newServer(relayDescription(), &subject{})
				p := newPresence(s.withoutHost, s.end)
				p.connected()
				if !late {
					s.session.setRole(role)
				}
				p.disconnected()
				time.Sleep(30 * time.Second)
				s.session.setRole(role)
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				var ended bool
				select {
				case <-s.closing:
					ended = true
				default:
				}
				if ended != (role == 0) {
					t.Errorf("role %v, late %t: after a day without a host ended is %t", role, late, ended)
				}
			})
		}
	}
}
