// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk"
)

// A counting dataplane has one Service, which has a connection more with each reading.
type counting struct {
	name sdk.Name
	read int
	took time.Duration
	pass func(time.Duration)
}

func (c *counting) Count(_ context.Context, f func(sdk.Traffic) error) error {
	if c.read++; c.read > 90 {
		return errors.New("no more")
	}
	c.pass(c.took)
	return f(sdk.Traffic{Name: c.name, Since: time.Unix(1000, 0), Connections: uint64(c.read)})
}

// TestMeterReads counts how often is read: twice to begin with, once each second at most, more seldom
// where that takes long, and anew of another process or after a time.
func TestMeterReads(t *testing.T) {
	now := time.Unix(2000, 0)
	m := newMeter()
	m.now = func() time.Time { return now }
	pass := func(d time.Duration) { now = now.Add(d) }
	m.wait = func(_ context.Context, d time.Duration) error { pass(d); return nil }
	first := &counting{pass: pass}
	slow := &counting{pass: pass, took: time.Second}
	for i, step := range []struct {
		of      *counting
		after   time.Duration
		reads   int
		seconds float64
	}{
		{first, 0, 2, 1},
		{first, 0, 2, 1},
		{first, 999 * time.Millisecond, 2, 1},
		{first, time.Second, 3, 1.999},
		{first, 30 * time.Second, 4, 30},
		{first, 61 * time.Second, 6, 1},
		{slow, 0, 2, 11},
		{slow, 8 * time.Second, 2, 11},
		{slow, 2 * time.Second, 3, 11},
		{first, 0, 8, 1},
	} {
		pass(step.after)
		before, last, err := m.read(t.Context(), step.of)
		if err != nil {
			t.Fatal(err)
		}
		if seconds := last.at.Sub(before.at).Seconds(); step.of.read != step.reads || seconds != step.seconds {
			t.Errorf("step %d: %d readings, the last two %vs apart; want %d, %v", i, step.of.read, seconds, step.reads, step.seconds)
		}
	}
	first.read = 90
	pass(time.Minute)
	if _, _, err := m.read(t.Context(), first); err == nil || err.Error() != "no more" {
		t.Errorf("of one that cannot be read: %v", err)
	}
}

// TestRates holds what two readings say of a second to what happened.
func TestRates(t *testing.T) {
	name := sdk.Name{Namespace: "shop", Service: "web", Port: "http", Protocol: sdk.TCP, Family: sdk.IPv4}
	began := time.Unix(1000, 0)
	at := func(n uint64, since time.Time) sdk.Traffic {
		return sdk.Traffic{Name: name, Since: since, Connections: n, Bytes: true, BytesIn: 10 * n, BytesOut: 100 * n}
	}
	for _, c := range []struct {
		what        string
		before, now sdk.Traffic
		rate        float64
	}{
		{"it had more", at(10, began), at(30, began), 10},
		{"it had none", at(10, began), at(10, began), 0},
		{"it came meanwhile", sdk.Traffic{}, at(8, time.Unix(2001, 0)), 4},
		{"it was there, and not read", sdk.Traffic{}, at(8, began), 0},
		{"it began anew", at(100, began), at(6, time.Unix(2001, 0)), 3},
		{"it began anew, and does not say so", at(100, began), at(6, began), 3},
	} {
		before := &reading{at: time.Unix(2000, 0), counts: map[sdk.Name]sdk.Traffic{name: c.before}}
		now := &reading{at: time.Unix(2002, 0), counts: map[sdk.Name]sdk.Traffic{name: c.now}}
		services := []admin.Service{{Namespace: "shop", Name: "web", Ports: []admin.Port{{Name: "http", Network: "tcp4"}, {Name: "http", Network: "tcp6"}}}}
		addTraffic(services, now.traffic(before))
		got := services[0].Ports[0].Traffic
		if got == nil || got.Connections != c.now.Connections || got.ConnectionsPerSecond != c.rate || got.Bytes.InPerSecond != 10*c.rate || got.Bytes.OutPerSecond != 100*c.rate || got.Bytes.In != c.now.BytesIn || !got.Since.Equal(c.now.Since) {
			t.Errorf("%s: %+v", c.what, got)
		}
		if busy := now.busy(before); len(busy) != 1 || busy[0].Service != "shop/web:http/tcp4" || busy[0].Connections != c.rate || !busy[0].Bytes || busy[0].In != 10*c.rate || busy[0].Out != 100*c.rate {
			t.Errorf("%s: for metrics %+v", c.what, busy)
		}
		if other := services[0].Ports[1].Traffic; other != nil {
			t.Errorf("%s: another port has %+v", c.what, other)
		}
	}
}
