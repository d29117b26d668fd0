// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestKernelManyServices swaps a thousand Services (in a soak, ten thousand) under load, on each backend of iptables,
// and kills a plugin. It prints the figures of docs/performance.md.
func TestKernelManyServices(t *testing.T) {
	count := 1000
	if os.Getenv("POINTSMAN_SOAK") != "" {
		count = 10000
	}
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			n := newNode(t, "iptables")
			n.drain = 10 * time.Minute // the time that many Services take must not end a kept connection
			n.options = "backend: " + backend
			n.writeMode("iptables")
			var many strings.Builder
			for i := range count {
				many.WriteString(service(fmt.Sprintf("s%d", i), fmt.Sprintf("172.31.%d.%d", i/250, i%250+1), "", 80,
					fmt.Sprintf("10.181.%d.%d", i/250, i%250+1), fmt.Sprintf("10.182.%d.%d", i/250, i%250+1)))
			}
			n.write("services/many.yaml", many.String())
			n.start()
			n.waitForSync()
			l := n.newLoad()
			before, began := n.plugin("iptables"), time.Now()
			n.kill(before)
			n.until("another process serves", n.servesWith("iptables", before))
			n.waitForSync()
			t.Logf("updates are served again %s after the plugin was killed", time.Since(began))
			for _, mode := range []string{"userspace", "iptables"} {
				t.Logf("%s serves %s after the command", mode, n.swapTo(mode))
			}
			l.done(fmt.Sprintf("swaps with %d Services, %s", count, backend))
			if m := n.waitForMode("iptables"); m.Last == nil || m.Last.Error != "" {
				t.Errorf("the last swap ended with %+v", m.Last)
			}
		})
	}
}

// waitForSync waits until everything is confirmed.
func (n *node) waitForSync() {
	n.Helper()
	n.until("everything is confirmed", func() error {
		s, err := n.Status(n.Context())
		if err == nil && (s.Sync.Acked == 0 || s.Sync.Pending > 0 || s.Services.Services < 2) {
			err = fmt.Errorf("sync %+v of %d Services", s.Sync, s.Services.Services)
		}
		return err
	})
}
