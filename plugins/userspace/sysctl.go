// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
)

// setLimits sets the parameters that the node asks for, or checks them when somebody
// else sets them, and gives back those that it no longer asks for.
func (d *Dataplane) setLimits() error {
	w := d.way
	if w == nil || w.rules.lock == nil || d.role != sdk.Active {
		return nil
	}
	asked := d.ground.node.Conntrack
	if w.limited != nil && *w.limited == asked {
		return nil
	}
	all := duty.Conntrack(duty.Folder, asked)
	if d.sysctls == sdk.ExpectSysctls {
		return all.Expect()
	}
	log := d.status.log.Load()
	if err := all.Take(w.rules.ledger, mode, log); err != nil {
		return err
	}
	if err := all.Release(w.rules.ledger, mode, log); err != nil {
		return err
	}
	w.limited = &asked
	return nil
}
