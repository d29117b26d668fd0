// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/ruleset"
)

// How often the machine's addresses are read again, and how often clients whose
// time is over are forgotten.
const (
	addressPeriod = 2 * time.Second
	sweepPeriod   = 30 * time.Second
)

// follow keeps up with what no call tells: addresses that come and go, places
// that become free, clients whose time is over. It ends with ctx.
func (d *Dataplane) follow(ctx context.Context) {
	look := time.NewTicker(addressPeriod)
	defer look.Stop()
	sweep := time.NewTicker(sweepPeriod)
	defer sweep.Stop()
	watch := time.NewTicker(ruleset.LookEvery)
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-watch.C:
			d.watch(ctx)
		case <-look.C:
			d.look(ctx)
		case <-sweep.C:
			d.sweep(time.Now())
		}
	}
}

// watch looks at the rules, and puts back what another process removed. A call ends it.
func (d *Dataplane) watch(ctx context.Context) {
	ctx, leave, err := d.aside(ctx)
	if err != nil {
		return
	}
	defer leave()
	if d.way != nil && d.way.told && !(d.writes() && d.claim.Owes()) && d.way.rules.patrol(ctx) {
		d.standDown()
	}
}

// look at the addresses, and try again what is owed, or was not carried
// out to its end. A call ends it.
func (d *Dataplane) look(ctx context.Context) {
	own, err := d.addresses()
	if err != nil {
		d.status.log.Load().Warn("node ports stay at the addresses known so far", "err", err)
		return
	}
	ctx, leave, err := d.aside(ctx)
	if err != nil {
		return
	}
	defer leave()
	for p, s := range d.retired {
		if !s.Drain() {
			delete(d.retired, p)
		}
	}
	if d.writes() && d.claim.Owes() {
		return // that comes first
	}
	d.forgetFormer(ctx)
	var edits []edit
	further := slices.Collect(maps.Keys(d.owed))
	moved := false
	was := d.ground
	if !slices.Equal(own, was.addresses) {
		edits = d.stand(newGround(was.node, own))
		further = append(further, d.reframe(false)...)
		moved = d.way != nil && !slices.Equal(was.nodePorts, d.ground.nodePorts)
	}
	if moved || len(edits)+len(further)+len(d.undone) > 0 {
		if _, err := d.carryOut(ctx, edits, further...); err != nil {
			d.setGround(was) // the next look begins there
			d.undone = append(d.undone, further...)
			d.status.log.Load().Info("not following the machine's addresses yet", "err", err)
		}
	}
}

// sweep forgets clients of all Services.
func (d *Dataplane) sweep(now time.Time) {
	d.mu.Lock()
	services := slices.Collect(maps.Values(d.services))
	d.mu.Unlock()
	for _, s := range services {
		if s.Value().Affinity > 0 {
			s.ExpireAffinity(now)
		}
	}
}
