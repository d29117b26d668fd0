// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// silentSync is how long a Sync may run until the log says that nothing is known of it.
const silentSync = 4 * time.Second

// watchSync has the log say so if a Sync runs on and the dataplane reports no progress. The host cannot
// tell then whether it works or hangs, and waits until the call's deadline.
func (s *server) watchSync() (done func()) {
	began := time.Now()
	timer := time.AfterFunc(silentSync, func() {
		if r, ok := s.dataplane.(sdk.Reporter); ok {
			if report := r.Report(); report.Progress > 0 || report.Waiting != "" {
				return
			}
		}
		s.log.Warn("Sync has not returned yet, and does not report progress: whether it works or hangs is known at its deadline only; try: sdk.Reporter, with a Progress that grows",
			"after", time.Since(began).Round(time.Second))
	})
	return func() { timer.Stop() }
}
