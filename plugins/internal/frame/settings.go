// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// takeSettings sets kernel parameters, and adds a note for each that cannot be set.
func (d *Dataplane[P]) takeSettings(all sysctl.Settings) error {
	for _, s := range all {
		delete(d.status.unset, s.Path)
	}
	err := all.Take(d.ledger, d.name(), func(s sysctl.Setting, err error) {
		d.status.unset[s.Path] = fmt.Sprintf("%s%s stays as it is, and was to be %s: %v; set it on the machine itself", sdk.NotSet, s.Path, s.Value, err)
	})
	for _, s := range all {
		if _, matches := s.Now(); matches {
			d.matched[s] = true
		}
	}
	return err
}

// checkSettings detects kernel parameters that another program has changed. It sets those again
// without which packets are lost, and adds a note for each of the others, because an operator may
// have changed it for a reason.
func (d *Dataplane[P]) checkSettings() {
	if d.session.Settings == nil || d.role != sdk.Active {
		return
	}
	var notes []string
	for _, s := range d.session.Settings(d.state.Node) {
		now, matches := s.Now()
		if matches {
			d.matched[s] = true
		}
		if matches || !d.matched[s] { // takeSettings has noted a parameter that never matched
			continue
		}
		changed := fmt.Sprintf("another program has set %s to %s, and it was %s", s.Path, now, s.Value)
		if s.Must {
			err := d.takeSettings(sysctl.Settings{s})
			if err == nil {
				d.log.Warn("set a kernel parameter again that another program changed", "path", s.Path, "to", s.Value, "from", now)
				d.status.change(func(r *sdk.Report) { r.Repaired, r.Repair = r.Repaired+1, changed+"; it was set again" })
				continue
			}
			changed += fmt.Sprintf("; it cannot be set again: %v", err)
		}
		notes = append(notes, changed)
	}
	if !slices.Equal(notes, d.status.changed) {
		d.status.change(func(*sdk.Report) { d.status.changed = notes })
		d.publish()
	}
}
