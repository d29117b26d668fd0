// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// lookAtSettings looks whether another program has changed kernel parameters. Those without which packets go astray
// are set again, and the others are noted: who tunes a machine may know better.
func (d *Dataplane[P]) lookAtSettings() {
	if d.open.Settings == nil || d.role != sdk.Active {
		return
	}
	var notes []string
	for _, s := range d.open.Settings(d.state.Node) {
		now, as := s.Now()
		if as {
			d.seen[s] = true
		}
		if as || !d.seen[s] {
			continue // one that never was so is told of by what could not set it
		}
		changed := fmt.Sprintf("another program has set %s to %s, and it was %s", s.Path, now, s.Value)
		if s.Must {
			err := d.take(sysctl.Settings{s})
			if err == nil {
				d.log.Warn("set a kernel parameter again that another program changed", "path", s.Path, "to", s.Value, "from", now)
				d.status.tell(func(r *sdk.Report) { r.Repaired, r.Repair = r.Repaired+1, changed+"; it was set again" })
				continue
			}
			changed += fmt.Sprintf("; it cannot be set again: %v", err)
		}
		notes = append(notes, changed)
	}
	if !slices.Equal(notes, d.status.parameters) {
		d.status.tell(func(*sdk.Report) { d.status.parameters = notes })
		d.publish()
	}
}
