// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"fmt"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// leaveOther removes, once in a session, what the mode has in the backend of iptables that this
// session does not write to: the option may have changed while no process ran. It comes after
// what serves is written. What cannot be removed is a note; it costs no Service.
func (d *Dataplane[P]) leaveOther(ctx context.Context) {
	if d.mode.Elsewhere == nil || d.elsewhere {
		return
	}
	d.elsewhere = true
	env := d.env()
	var tools []iptables.Tool
	for _, f := range d.families {
		if tool, there := f.shared().Elsewhere(ctx); there {
			tool.Waiting, tool.Heard = env.Waiting, env.Step
			if d.lock != nil {
				tool.Hold = d.lock.File()
			}
			tools = append(tools, tool)
		}
	}
	if len(tools) == 0 {
		return
	}
	gone, err := d.mode.Elsewhere(ctx, tools, env)
	if len(gone) > 0 {
		d.log.Info("removed what was served by the other backend of iptables, which the options name no more", "backend", tools[0].Backend, "steps", len(gone))
	}
	if err != nil {
		env.Note(fmt.Sprintf("what this dataplane wrote by %s iptables stays: %v", tools[0].Backend, err))
	}
}
