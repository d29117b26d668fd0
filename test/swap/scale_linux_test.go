// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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

// TestKernelManyServices measures a swap, and the death of a plugin, with a thousand
// Services: a soak has ten thousand. A mode is retired once it catches nothing new; what
// follows is for as long as its connections like, so until it is gone is measured without
// load.
func TestKernelManyServices(t *testing.T) {
	count, again := 1000, 500*time.Millisecond
	if os.Getenv("POINTSMAN_SOAK") != "" {
		count, again = 10000, 0
	}
	t.Run("nft", func(t *testing.T) { swapsOfMany(t, count, "nft", 15*time.Second, again) })
	t.Run("legacy", func(t *testing.T) { swapsOfMany(t, count, "legacy", 5*time.Second, again) })
}

// swapsOfMany swaps count Services on a backend of iptables, where the mode that leaves is
// meant to be retired within that time, and a killed plugin to have its updates served
// again.
func swapsOfMany(t *testing.T, count int, backend string, meant, again time.Duration) {
	n := newNode(t, "iptables")
	n.drain = 10 * time.Minute // what many Services take must not cut a kept connection
	n.options = "backend: " + backend
	n.mode("iptables")
	n.write("services/many.yaml", many(count))
	n.start()
	n.synced()
	l := n.newLoad()
	note := func(what string, took, meant time.Duration) {
		measured.time(fmt.Sprintf("%d Services, %s: %s", count, backend, what), took, meant)
	}
	ruled := n.observe(n.callers()) // connections from now on have no relay between
	defer ruled.end()
	before, began := n.plugin("iptables"), time.Now()
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.until("another process serves", long, n.servesWith("iptables", before))
	n.synced()
	note("a plugin killed: updates are served again", time.Since(began), again)
	note("under load, until iptables is retired", n.swapTo("userspace"), meant)
	note("longest silence of connections begun with iptables", ruled.longest(t), 50*time.Millisecond)
	relayed := n.observe(n.callers())
	defer relayed.end()
	note("under load, until userspace is retired", n.swapTo("iptables"), meant)
	note("longest silence of connections begun with userspace", relayed.longest(t), 50*time.Millisecond)
	l.done(fmt.Sprintf("swaps with %d Services, %s", count, backend))
	n.settled("iptables")
	n.until("no stream of the load is waited for", long, noStreams)
	for _, mode := range []string{"userspace", "iptables"} {
		retired := n.swapTo(mode)
		m := n.settled(mode)
		if m.Last == nil || m.Last.Error != "" {
			t.Errorf("the swap to %s ended with %+v", mode, m.Last)
			continue
		}
		note("from the command until "+m.Last.From+" is retired", retired, meant)
		note("… and until "+m.Last.From+" is gone", time.Duration(m.Last.Seconds*float64(time.Second)), 0)
	}
}

// noStreams reports the flows of datagrams that the node remembers.
func noStreams() error {
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
	for _, f := range flows {
		if f.Forward.Protocol == unix.IPPROTO_UDP {
			return fmt.Errorf("it remembers %s", f)
		}
	}
	return err
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
