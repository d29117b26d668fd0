// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newSecondHost starts a second host in the namespace of n, with files and a state directory of its own, that answers
// probes.
func (n *node) newSecondHost(mode string) *node {
	n.Helper()
	dir, err := os.MkdirTemp("", "swap")
	if err != nil {
		n.Fatal(err)
	}
	second := newClient(n.T, dir)
	second.options, second.probed = n.options, true
	n.Cleanup(func() {
		second.testbed = nil // the first node closes it
		second.close()
	})
	second.testbed = n.testbed
	second.install()
	second.write("services/web.yaml", manifest)
	second.writeMode(mode)
	return second
}

// expectNotWriter waits until every interface of the host reports that the dataplane of n is not the writer, and names
// the process that is.
func (n *node) expectNotWriter(mode string, writer int) {
	n.Helper()
	holder := fmt.Sprintf("pid %d (pointsman-dataplane-%s)", writer, mode)
	n.until("status says which process is the writer", func() error {
		s, err := n.Status(n.Context())
		if err != nil {
			return err
		}
		if s.Healthy || s.Sync.Acked != 0 || s.Sync.Pending == 0 || s.Dataplane.Lock != "awaited" || s.Dataplane.Holder != holder {
			return fmt.Errorf("healthy %t, sync %+v, lock %q of %q", s.Healthy, s.Sync, s.Dataplane.Lock, s.Dataplane.Holder)
		}
		return errors.Join(n.statusIs(false, "W014 "), n.statusIs(false, holder))
	})
	n.expectAnswer(10256, "readyz", "503", `"ready":false`)
	n.expectAnswer(10249, "metrics", "200",
		fmt.Sprintf("\npointsman_plugin_writer{plugin=%q} 0\n", mode), fmt.Sprintf("\npointsman_plugin_active{plugin=%q} 0\n", mode),
		fmt.Sprintf("\npointsman_plugin_revision{plugin=%q,state=\"served\"} 0\n", mode), "\npointsman_ready 0\n")
	n.waitForEvent(holder + " holds the writer's lock")
}

// expectWriter waits until every interface of the host reports that the dataplane of n is the writer.
func (n *node) expectWriter(mode string) {
	n.Helper()
	n.until("all is well", func() error {
		s, err := n.Status(n.Context())
		if err == nil && (s.Sync.Served != s.Sync.Acked || s.Dataplane.Lock != "held" || s.Dataplane.Holder != "") {
			err = fmt.Errorf("sync %+v, lock %q of %q", s.Sync, s.Dataplane.Lock, s.Dataplane.Holder)
		}
		return errors.Join(err, n.statusIs(true, ""))
	})
	n.expectAnswer(10256, "readyz", "200", `"ready":true`)
	n.expectAnswer(10249, "metrics", "200", fmt.Sprintf("\npointsman_plugin_writer{plugin=%q} 1\n", mode), fmt.Sprintf("\npointsman_plugin_active{plugin=%q} 1\n", mode))
	n.waitForEvent("it holds the writer's lock, and its updates are applied")
}

// TestKernelTwoHosts has two hosts in one namespace that do not know of each other. The second one serves nothing, says
// so and names the process that does, until that one is killed; then it serves.
func TestKernelTwoHosts(t *testing.T) {
	for name, c := range map[string]struct{ mode, options string }{
		"nft": {"iptables", "backend: nft"}, "legacy": {"iptables", "backend: legacy"},
		"userspace": {"userspace", ""}, "nftables": {"nftables", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, c.mode)
			n.needsLaunchedPlugins()
			n.options = c.options
			n.writeMode(c.mode)
			n.start()
			n.waitForAnswers()
			writer := n.plugin(c.mode)

			second := n.newSecondHost(c.mode)
			second.exec(second.host())
			second.expectNotWriter(c.mode, writer)
			pending := second.pending()
			for i, addr := range []string{"172.30.0.21", "172.30.0.22"} { // and its clusterIP changes
				second.write("services/added.yaml", service("added", addr, "", port, backends[0].String()))
				second.until("the change is known", func() error {
					if now := second.pending(); i == 0 && now <= pending {
						return fmt.Errorf("%d are pending", now)
					}
					return second.knowsAddr(addr)
				})
			}
			second.expectNotWriter(c.mode, writer)
			at := netip.MustParseAddrPort("172.30.0.22:8080")
			if err := n.tryCall(pod, at); err == nil {
				t.Error("a Service is served that no process with the right to write was sent")
			}
			n.waitForAnswers()

			n.end(syscall.SIGKILL) // and with it the writer
			killed := time.Now()
			n.until("the Service is answered", func() error { return n.tryCall(pod, at) })
			t.Logf("the second host serves %s after the writer was killed", time.Since(killed).Round(time.Millisecond))
			second.expectWriter(c.mode)
			if err := n.tryCall(pod, netip.MustParseAddrPort("172.30.0.21:8080")); err == nil {
				t.Error("the clusterIP of before is served")
			}
			n.waitForAnswers()
		})
	}
}

// pending returns the number of Services that the dataplane has not confirmed.
func (n *node) pending() int {
	n.Helper()
	s, err := n.Status(n.Context())
	if err != nil {
		n.Fatal(err)
	}
	return s.Sync.Pending
}

// knowsAddr checks that the host knows a Service at addr.
func (n *node) knowsAddr(addr string) error {
	out, err := n.verb("service", "list", "-o", "json")
	if err == nil && !strings.Contains(out, "cluster-ip "+addr+":") {
		err = fmt.Errorf("no Service has %s: %s", addr, out)
	}
	return err
}
