// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestKernelDiff runs diff: there is no difference until another program removes what leads to Services, which diff
// names.
func TestKernelDiff(t *testing.T) {
	for mode, harm := range map[string]string{
		"iptables": "flush chain ip nat KUBE-SERVICES",
		"nftables": "flush map ip pointsman endpoints",
	} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t, mode)
			n.options, n.protect = "backend: nft", "protect: never"
			n.writeMode(mode)
			n.start()
			same := func() error {
				if out, err := n.verb("diff"); err != nil || out != "nothing differs\n" {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			}
			n.write("services/named.yaml", named)
			n.until("a Service with affinity is served", func() error {
				_, err := n.verb("service", "show", "shop/named")
				return errors.Join(err, same())
			})
			n.write("services/named.yaml", "# what it needed may be kept")
			n.until("the Service is gone", func() error {
				if _, err := n.verb("service", "show", "shop/named"); err == nil {
					return errors.New("it is there")
				}
				return nil
			})
			n.until("nothing differs", same)
			harms := exec.CommandContext(t.Context(), "sh", "-c", "while nft '"+harm+"'; do :; done")
			if err := harms.Start(); err != nil { // more than once: what is repaired before diff reads is no difference
				t.Fatal(err)
			}
			defer func() { _ = harms.Process.Kill(); _ = harms.Wait() }()
			n.until("diff names a frontend", func() error {
				out, err := n.verb("diff")
				if exitCode(err) != 1 || !strings.Contains(out, "cluster-ip "+vip.String()+":") || !strings.Contains(out, " difference") {
					return errors.New(out)
				}
				return nil
			})
		})
	}
}
