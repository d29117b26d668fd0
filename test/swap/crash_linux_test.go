// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKernelPluginKilled kills the plugin under load, and stops it (SIGSTOP), which the host detects. Another process
// serves what changes. A mode that serves by rules fails no call.
func TestKernelPluginKilled(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) *node{
		"iptables":      func(t *testing.T) *node { return newNode(t, "iptables") },
		"nftables":      func(t *testing.T) *node { return newNode(t, "nftables") },
		"iptables unit": func(t *testing.T) *node { return newApart(t, "iptables") },
	} {
		t.Run(name, func(t *testing.T) {
			n, mode := begin(t), strings.Fields(name)[0]
			n.start()
			l := n.newLoad()
			for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGSTOP} {
				before, began := n.plugin(mode), time.Now()
				n.signal(before, sig)
				n.until("another process serves", n.servesWith(mode, before))
				n.update(i)
				t.Logf("%s: updates were served again after %s (goal: 500ms after the first kill)", sig, time.Since(began))
			}
			l.done("a plugin of " + mode + " killed and stopped")
		})
	}
}
