// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

const (
	trafficGap   = time.Second // between two readings, at least; and ten times as long as a reading took
	trafficStale = time.Minute // a reading that is older says nothing of now
)

// A meter reads what traffic Services have had, when it is asked to. Rates are of two readings: it
// keeps the last two.
type meter struct {
	slot         chan struct{} // holds an element while what follows is used
	before, last *reading

	now  func() time.Time
	wait func(context.Context, time.Duration) error
}

// A reading is what a process of a dataplane had counted at a time.
type reading struct {
	of     sdk.Counter
	at     time.Time
	took   time.Duration
	counts map[sdk.Name]sdk.Traffic
}

func newMeter() *meter {
	return &meter{slot: make(chan struct{}, 1), now: time.Now, wait: func(ctx context.Context, d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

// read returns two readings of a process, of which the second is as new as may be.
func (m *meter) read(ctx context.Context, of sdk.Counter) (before, now *reading, err error) {
	select {
	case m.slot <- struct{}{}:
		defer func() { <-m.slot }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if m.last != nil && (m.last.of != of || m.now().Sub(m.last.at) > trafficStale) {
		m.before, m.last = nil, nil
	}
	for m.before == nil || m.now().Sub(m.last.at) >= m.last.gap() {
		next, err := m.count(ctx, of)
		if err != nil {
			return nil, nil, err
		}
		if m.before, m.last = m.last, next; m.before != nil {
			break
		}
		if err := m.wait(ctx, next.gap()); err != nil {
			return nil, nil, err
		}
	}
	return m.before, m.last, nil
}

// gap is how long after r no other reading is made.
func (r *reading) gap() time.Duration { return max(trafficGap, 10*r.took) }

func (m *meter) count(ctx context.Context, of sdk.Counter) (*reading, error) {
	r := &reading{of: of, at: m.now(), counts: make(map[sdk.Name]sdk.Traffic)}
	err := of.Count(ctx, func(t sdk.Traffic) error { r.counts[t.Name] = t; return nil })
	r.took = m.now().Sub(r.at)
	return r, err
}

// traffic returns what Services have had, and at which rates; none where the dataplane does not count.
func (r *reading) traffic(before *reading) map[sdk.Name]*admin.Traffic {
	all := make(map[sdk.Name]*admin.Traffic, len(r.counts))
	seconds := r.at.Sub(before.at).Seconds()
	for name, now := range r.counts {
		was := before.counts[name] // none: all that it has had came meanwhile, or is not known to be new
		begun := !was.Since.Equal(now.Since)
		if begun && now.Since.Before(before.at) {
			was = now
		} else if begun {
			was = sdk.Traffic{}
		}
		per := func(was, now uint64) float64 {
			if was > now { // it began anew, whatever it says
				was = 0
			}
			return float64(now-was) / seconds
		}
		t := &admin.Traffic{Since: now.Since, Connections: now.Connections, ConnectionsPerSecond: per(was.Connections, now.Connections)}
		if now.Bytes {
			t.Bytes = &admin.Bytes{In: now.BytesIn, Out: now.BytesOut, InPerSecond: per(was.BytesIn, now.BytesIn), OutPerSecond: per(was.BytesOut, now.BytesOut)}
		}
		all[name] = t
	}
	return all
}

// Traffic adds to each port of services what the dataplane that serves has counted. It is read when it
// is asked for, and never more often than each second: asking costs the node little.
func (set *Set) Traffic(ctx context.Context, services []admin.Service) admin.Reading {
	before, now, err := set.readTraffic(ctx)
	if err != nil {
		return admin.Reading{Why: err.Error()}
	}
	addTraffic(services, now.traffic(before))
	return admin.Reading{Seconds: now.at.Sub(before.at).Seconds()}
}

// Busy returns what each port of a Service that is counted has had in a second, in no order.
func (set *Set) Busy(ctx context.Context) ([]health.Busy, error) {
	before, now, err := set.readTraffic(ctx)
	if err != nil {
		return nil, err
	}
	return now.busy(before), nil
}

func (r *reading) busy(before *reading) []health.Busy {
	all := make([]health.Busy, 0, len(r.counts))
	for name, t := range r.traffic(before) {
		b := health.Busy{Service: name.String(), Connections: t.ConnectionsPerSecond}
		if t.Bytes != nil {
			b.Bytes, b.In, b.Out = true, t.Bytes.InPerSecond, t.Bytes.OutPerSecond
		}
		all = append(all, b)
	}
	return all
}

// readTraffic returns two readings of the dataplane that serves.
func (set *Set) readTraffic(ctx context.Context) (before, now *reading, err error) {
	ctx, cancel := context.WithTimeout(ctx, readBack)
	defer cancel()
	main := set.serving()
	remote := main.remote()
	if remote == nil {
		return nil, nil, errNoProcess
	}
	before, now, err = set.meter.read(ctx, remote)
	if errors.Is(err, wire.ErrUnsupported) {
		err = fmt.Errorf("%s does not count the traffic of Services", main.name)
	}
	return before, now, err
}

// addTraffic adds to each port what it has had.
func addTraffic(services []admin.Service, traffic map[sdk.Name]*admin.Traffic) {
	named := make(map[string]*admin.Traffic, len(traffic))
	for name, t := range traffic {
		named[name.String()] = t
	}
	for _, s := range services {
		for i := range s.Ports {
			s.Ports[i].Traffic = named[s.PortName(s.Ports[i])]
		}
	}
}
