// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// leaveOther removes, once in a session, what the mode has in the backend of iptables that this
// session does not write to: the option may have changed while no process ran. It comes after
// all Services are served by what this session wrote: until then a Service that failed may be served
// there. What cannot be removed is a note; it costs no Service.
func (d *Dataplane[P]) leaveOther(ctx context.Context) {
	if d.mode.Elsewhere == nil || d.otherBackend || !d.servesAll() {
		return
	}
	d.otherBackend = true
	env := d.env()
	var tools []iptables.Tool
	for _, f := range d.families {
		if tool, there := f.Masquerade().Elsewhere(ctx); there {
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

// servesAll reports whether all that is desired is served by what this session wrote: no Service
// failed, and it is known what the kernel has.
func (d *Dataplane[P]) servesAll() bool {
	unknown := func(f *family[P]) bool { return !f.adopted }
	return len(d.failed) == 0 && !slices.ContainsFunc(d.families, unknown)
}
