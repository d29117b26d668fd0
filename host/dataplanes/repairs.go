// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"time"

	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk/wire"
)

// repairs records how often a dataplane reverted changes by other programs.
type repairs struct {
	known uint64      // the count that its process last reported
	begun bool        // a count was reported in this session
	times []time.Time // when repairs were reported, oldest first; repairs within repairsApart count once
}

const (
	repairsApart = 5 * time.Second // one flush of both IP families is repaired within this time
	repairsCount = 5 * time.Minute // older repairs do not count any more
)

// addReport returns r after the process reported a total of n repairs, and how many of them are
// new. The first report of a session is the baseline: those repairs were reported to a previous
// host.
func (r repairs) addReport(n uint64, now time.Time) (next repairs, news uint64) {
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

// reportRepairs reports new repairs.
func (p *dataplane) reportRepairs(v wire.Vitals) {
	p.mu.Lock()
	next, news := p.repairs.addReport(v.Repaired, time.Now())
	p.repairs = next
	p.mu.Unlock()
	if news > 0 {
		p.host.Reports.Report(report.Event{Warning: true, Reason: report.PluginRepaired, Object: p.name, Message: "it reverted changes by another program: " + v.Repair})
	}
}
