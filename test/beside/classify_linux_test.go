// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"time"
)

// classify classifies an unexplained difference: it calls in the same way a Service that was served before. A proxy that
// is late there is late everywhere.
func (c *contest) classify(p *proxy, q question) string {
	for _, to := range c.seen.targets() {
		if to.network != q.to.network {
			continue
		}
		began := time.Now()
		got := p.call(c.Context(), q.from, to, c.again)
		took := time.Since(began).Round(time.Millisecond)
		if took > c.again/4 || !served(answer{got}) {
			return fmt.Sprintf("the machine is too busy to tell: another Service said %q after %s", got, took)
		}
		return fmt.Sprintf("a fault of %s: another Service answered after %s", p, took)
	}
	return "of " + p.String()
}
