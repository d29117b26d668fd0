// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"time"
)

// askToEnd asks a process that something else keeps running to end, and waits a second for that. It gets
// no signal: what runs it has its own ways to end one that does not answer.
func (v *live) askToEnd() {
	if v.remote.Shutdown(context.Background()) != nil {
		return
	}
	select {
	case <-v.remote.Exited():
	case <-time.After(time.Second):
	}
}
