// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
)

// warnWriter has another process that is the writer know that we clean up.
func (p *plugin) warnWriter() error {
	if p.lock != nil {
		return nil
	}
	return p.cleanedMark().Leave(p.dir, mode)
}

func (p *plugin) cleanedMark() duty.Cleaned { return duty.CleanedIn(p.dir, mode) }

// standDown ends being the writer, from within the watch, which ends by itself
// then. A host that wants this process to serve says so by a role.
func (p *plugin) standDown() {
	p.log.Warn("another process cleaned up: standing down")
	lock, w := p.lock, p.watch
	p.lock, p.watch, p.role = nil, nil, sdk.Yielded
	p.claim.Forget()
	p.hold()
	w.quit()
	if err := lock.Unlock(); err != nil {
		p.log.Warn("cannot give up the right to write", "err", err)
	}
}
