// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
)

// settings are the kernel's parameters that the mode asks for on this node.
func (d *Dataplane[P]) settings() duty.Settings {
	if d.open.Settings == nil {
		return nil
	}
	return d.open.Settings(d.state.Node)
}

// settle gives back the parameters that are no longer asked for, and sets those that must
// be there first. It goes before everything that is written: what keeps a parameter from
// doing harm stands until then.
func (d *Dataplane[P]) settle() error {
	if !d.writes() || d.open.Settings == nil {
		return nil
	}
	if d.setup.Sysctls == sdk.ExpectSysctls {
		return d.settings().First().Expect()
	}
	if err := d.settings().Release(d.ledger, d.name(), d.log); err != nil {
		return err
	}
	return d.settings().First().Take(d.ledger, d.name(), d.log)
}

// takeSettings sets all parameters, or checks them where the node sets them. It goes
// after what is written, and only while Active.
func (d *Dataplane[P]) takeSettings() error {
	if d.setup.Sysctls == sdk.ExpectSysctls {
		return d.settings().Expect()
	}
	return d.settings().Take(d.ledger, d.name(), d.log)
}
