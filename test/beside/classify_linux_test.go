// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"time"
)

// classify guesses the cause of an unexplained difference. It calls another Service, which was served before, from the
// same caller. If that call is slow, too, the machine is too busy; otherwise the proxy has a fault.
func (c *contest) classify(p *proxy, q question) string {
	for _, to := range c.seen.targets() {
		if to.network != q.to.network {
			continue
		}
		began := time.Now()
		got := p.call(c.Context(), q.from, to, c.again)
		took := time.Since(began).Round(time.Millisecond)
		if took > c.again/4 || !served(answer{got}) {
			return fmt.Sprintf("the machine may be too busy: another Service answered %q after %s", got, took)
		}
		return fmt.Sprintf("a fault of %s: another Service answered after %s", p, took)
	}
	return "not classified: " + p.String()
}
