// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// reportWithin is how long a dataplane has to say what it has counted.
const reportWithin = time.Second

// Activity returns what the host and the dataplane that serves have done so far.
func (set *Set) Activity(ctx context.Context) admin.Activity {
	main := set.serving()
	ctx, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()
	a := admin.Activity{Dataplane: main.shown(), Connections: main.connections(ctx)}
	a.Dataplane.Meta = admin.Meta{APIVersion: admin.APIVersion, Kind: "Plugin"}
	changes := set.Tracker.Changes()
	a.At, a.Changes, a.Slowest = time.Now(), changes.Services+changes.Slices, main.slowest()
	main.mu.Lock()
	a.Updates, a.SyncSeconds = main.followed.updates, main.followed.busy.Seconds()
	main.mu.Unlock()
	a.Sync, _ = main.sync()
	return a
}

// slowest returns the ports of Services that wait longest to be confirmed, or have lately waited
// longest. Without a session it knows of none.
func (p *dataplane) slowest() []admin.Wait {
	p.mu.Lock()
	var waits []track.Wait
	if p.session.fed() {
		waits = p.session.cursor.Slowest()
	}
	p.mu.Unlock()
	list, now := []admin.Wait{}, time.Now()
	for _, w := range waits {
		state, until := health.Served, w.Until
		if until.IsZero() {
			state, until = health.Pending, now
		}
		list = append(list, admin.Wait{Service: w.Name.String(), State: state, Since: w.Since, Seconds: max(0, until.Sub(w.Since)).Seconds()})
	}
	return list
}

// connections asks the dataplane how many it has taken since its process began; nil: it does not
// count them all, or does not answer.
func (p *dataplane) connections(ctx context.Context) *uint64 {
	remote := p.remote()
	if remote == nil {
		return nil
	}
	v, err := remote.Vitals(ctx)
	if err != nil {
		return nil
	}
	return connectionsIn(v.Samples, p.name)
}

// connectionsIn returns how many connections a dataplane has taken, as it publishes that: without
// labels, for a count with labels may be of some of them alone.
func connectionsIn(samples []sdk.Sample, dataplane string) *uint64 {
	name := "pointsman_" + strings.ReplaceAll(dataplane, "-", "_") + "_connections_total"
	for _, s := range samples {
		if s.Name == name && len(s.Labels) == 0 && s.Value >= 0 {
			n := uint64(s.Value)
			return &n
		}
	}
	return nil
}
