// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"time"

	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk/wire"
)

// repairs are the changes of other programs that a dataplane undid.
type repairs struct {
	known uint64      // how many its process reported last
	begun bool        // it has reported in this session
	times []time.Time // when some were reported, those within a few seconds once, the latest last
}

const (
	repairsApart = 5 * time.Second // what one flush took from both IP families is put back within this time
	repairsCount = 5 * time.Minute // and for so long they count
)

// heard returns r after the process has reported that it made n, and how many of them are new. Those that it made
// before this session were reported to another host.
func (r repairs) heard(n uint64, now time.Time) (next repairs, news uint64) {
	if r.begun && n > r.known {
		news = n - r.known
	}
	times := r.times
	for len(times) > 0 && now.Sub(times[0]) > repairsCount {
		times = times[1:]
	}
	if news > 0 && (len(times) == 0 || now.Sub(times[len(times)-1]) >= repairsApart) {
		times = append(times, now)
	}
	return repairs{n, true, times}, news
}

// takeRepairs reports the repairs that are new.
func (p *dataplane) takeRepairs(v wire.Vitals) {
	p.mu.Lock()
	next, news := p.repairs.heard(v.Repaired, time.Now())
	p.repairs = next
	p.mu.Unlock()
	if news > 0 {
		p.reports.Report(report.Event{Warning: true, Reason: report.PluginRepaired, Object: p.name, Message: "it undid what another program changed: " + v.Repair})
	}
}
