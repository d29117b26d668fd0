// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// If the kernel refuses a rule of a Service, the Service is served as before, and the other Services of the update are served
// as specified. When the kernel accepts the rule, the Service is, too.
func TestKernelRefusedLine(t *testing.T) {
	onNode(t, func(n node) {
		const barred, open = "172.30.0.41", "172.30.0.42"
		ranged := svc("ranged", "load-balancer "+barred+":80", podHere+":8080")
		ranged.Frontends[0].Sources = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}
		dns := udp(svc("dns", "cluster-ip 172.30.0.10:53", podHere+":8080"))
		n.serve(ranged, dns, svc("web", "cluster-ip "+open+":80", podHere+":8080"))
		n.finds("tcp", barred+":80", podHere+":8080")

		undo := n.kernel.refuse("-d 172.30.0.51.32 ")
		moved := svc("ranged", "load-balancer 172.30.0.51:80", podHere+":8080")
		result := n.offer(sdk.Update{
			Set: []sdk.Service{
				moved, svc("web", "cluster-ip 172.30.0.52:80", podHere+":8080"),
				udp(svc("dns", "cluster-ip 172.30.0.11:53", podHere+":8080")), svc("new", "cluster-ip 172.30.0.53:80", podHere+":8080"),
			},
		})
		refused := new(iptables.LineError)
		if len(result.Failed) != 1 || result.Failed[0].Name != ranged.Name || !errors.As(result.Failed[0].Err, &refused) {
			n.Fatalf("failed: %v; want %s alone", result.Failed, ranged.Name)
		}
		if n.named(refused) && !strings.Contains(refused.Line, "-d 172.30.0.51/32 -p tcp -m tcp --dport 80") {
			n.Errorf("failed: %v; want the refused line", refused)
		}
		n.finds("tcp", barred+":80", podHere+":8080")
		for _, at := range []string{"172.30.0.52:80", "172.30.0.53:80"} {
			n.finds("tcp", at, podHere+":8080")
		}
		n.finds("udp", "172.30.0.11:53", podHere+":8080")
		for _, at := range []string{"172.30.0.51:80", open + ":80"} {
			if got, err := n.call("tcp", at); err == nil {
				n.Errorf("%s answers at %s", got, at)
			}
		}
		n.checkRules()

		undo()
		n.set(moved)
		n.finds("tcp", "172.30.0.51:80", podHere+":8080")
		if got, err := n.call("tcp", barred+":80"); err == nil {
			n.Errorf("%s still answers at the old address", got)
		}
		n.checkRules()
	})
}

// named reports whether the kernel told which line it refused. With legacy it gets a whole table, and does not.
func (n node) named(refused *iptables.LineError) bool {
	return n.kernel.backend != iptables.Legacy || refused.Line != "COMMIT"
}

// checkRules fails if the rules in the kernel differ from the desired ones.
func (n node) checkRules() {
	n.Helper()
	n.do(func() error {
		for _, r := range n.way.redirected() {
			if _, err := r.rules.List(n.Context()); err != nil {
				return err
			}
			p := r.planRules()
			if steps := p.Steps(); len(steps) > 0 {
				n.Errorf("%s: still to be written: %q", r.family, steps)
			}
			if _, err := p.Apply(n.Context()); err != nil {
				return err
			}
		}
		return nil
	})
}
