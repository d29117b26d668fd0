// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// sweepOtherBackend removes, once in a session, the rules of the mode in the backend of iptables
// that this session does not write to: the option may have changed while no process ran. Until all
// Services are served by this session, a Service that failed may be served by these rules, so it
// waits. An error becomes a note and costs no Service.
func (d *Dataplane[P]) sweepOtherBackend(ctx context.Context) {
	if d.mode.Elsewhere == nil || d.swept || !d.servesAll() {
		return
	}
	d.swept = true
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
		d.log.Info("removed the rules in the former backend of iptables", "backend", tools[0].Backend, "steps", len(gone))
	}
	if err != nil {
		env.Note(fmt.Sprintf("the rules that this dataplane wrote in the %s backend of iptables cannot be removed: %v", tools[0].Backend, err))
	}
}

// servesAll reports whether this session serves all Services: none has failed, and the state of the
// kernel is known.
func (d *Dataplane[P]) servesAll() bool {
	unknown := func(f *family[P]) bool { return !f.known }
	return len(d.failed) == 0 && !slices.ContainsFunc(d.families, unknown)
}
