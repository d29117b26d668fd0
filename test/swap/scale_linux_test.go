// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// many are that many Services of two endpoints each.
func many(count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: s%d, namespace: many}
spec: {clusterIP: 172.31.%d.%d, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s%d-1, namespace: many, labels: {kubernetes.io/service-name: s%d}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.181.%d.%d]}, {addresses: [10.182.%d.%d]}]
---
`, i, i/250, i%250+1, i, i, i/250, i%250+1, i/250, i%250+1)
	}
	return b.String()
}

// TestKernelManyServices measures a swap, and the death of a plugin, with many
// Services: a soak has ten thousand.
func TestKernelManyServices(t *testing.T) {
	count := 500
	if os.Getenv("POINTSMAN_SOAK") != "" {
		count = 10000
	}
	n := newNode(t, "userspace")
	n.write("services/many.yaml", many(count))
	n.start()
	n.synced()
	l := n.newLoad()
	t.Logf("%d Services: iptables serves %s after the command", count, n.swapTo("iptables").Round(time.Millisecond))
	before, began := n.plugin("iptables"), time.Now()
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.until("another process serves", 60*time.Second, n.servesWith("iptables", before))
	n.synced()
	t.Logf("%d Services: updates are served again %s after the plugin was killed", count, time.Since(began).Round(time.Millisecond))
	t.Logf("%d Services: userspace serves %s after the command", count, n.swapTo("userspace").Round(time.Millisecond))
	l.done(fmt.Sprintf("swaps with %d Services", count))
}

// synced waits until everything is confirmed.
func (n *node) synced() {
	n.Helper()
	n.until("everything is confirmed", 3*time.Minute, func() error {
		s, err := n.Status(n.Context())
		if err == nil && (s.Sync.Acked == 0 || s.Sync.Pending > 0 || s.Services.Services < 2) {
			err = fmt.Errorf("sync %+v of %d Services", s.Sync, s.Services.Services)
		}
		return err
	})
}
