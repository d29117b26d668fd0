// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

// TestKernelAffinity checks that a client keeps its endpoint across swaps.
func TestKernelAffinity(t *testing.T) {
	n := newNode(t, "iptables")
	n.write("services/web.yaml", strings.Replace(manifest, "type: NodePort\n", "type: NodePort\n  sessionAffinity: ClientIP\n", 1))
	for i := range backends {
		host, err := n.testbed.Host(backends[i])
		if err != nil {
			t.Fatal(err)
		}
		l, err := netns.Answer(t.Context(), host, sdk.TCP, netip.AddrPortFrom(backends[i], 8081)) // with its own address
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	n.write("services/named.yaml", service("named", vip.String(), ", sessionAffinity: ClientIP", 8081, backends[0].String(), backends[1].String()))
	n.start()
	n.waitForSync()
	if _, err := os.Stat("/proc/net/xt_recent"); err != nil {
		t.Skipf("this kernel does not show which clients it remembers: %v", err)
	}
	keeps := n.whoAnswers()
	for _, mode := range []string{"userspace", "iptables", "nftables", "iptables", "nftables", "userspace", "nftables"} {
		n.swapTo(mode)
		n.waitForMode(mode)
		for range 6 {
			if now := n.whoAnswers(); now != keeps {
				t.Fatalf("%s sends the client to %s, and it had kept to %s", mode, now, keeps)
			}
		}
	}
}

// whoAnswers returns the backend that answers the client outside.
func (n *node) whoAnswers() (backend string) {
	n.Helper()
	c := n.caller("client", client, netip.AddrPortFrom(vip, 8081))
	c.Ask = func(conn net.Conn) error {
		_, err := fmt.Fscan(conn, &backend)
		return err
	}
	n.until("the client is answered", func() error { return c.Try(n.Context()) })
	return backend
}
