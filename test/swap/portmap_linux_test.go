// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/test/portmap"
	"github.com/pointsman/pointsman/test/traffic"
)

// TestKernelPortmap: a pod's hostPort is mapped by the real portmap plugin, which needs the
// chain KUBE-MARK-MASQ, before, during and after each swap; and the ports that were mapped
// answer all the time, also where the caller must be masqueraded.
func TestKernelPortmap(t *testing.T) {
	if why := portmap.Missing(); why != "" {
		t.Skip(why)
	}
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			n := newNode(t, "iptables")
			n.options = "backend: " + backend
			n.mode("iptables")
			n.start()
			p := &ports{node: n, tools: t.TempDir()}
			if err := portmap.Tools(p.tools, backend); err != nil {
				t.Skip("needs the backend: ", err)
			}
			p.once("first", 31001)
			for _, mode := range []string{"userspace", "nftables", "iptables"} { // with no port mapped, that would keep the chain
				n.swapTo(mode)
				n.settled(mode)
				p.once("alone-in-"+mode, 31001)
			}
			lasts := p.mapping("lasts", 31000)
			if err := lasts.Add(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, mode := range []string{"userspace", "nftables", "iptables", "nftables", "userspace", "iptables"} {
				finish := p.during(lasts)
				n.swapTo(mode)
				finish("to " + mode)
				n.settled(mode)
				p.once("in-"+mode, 31001)
				p.answers(lasts)
			}
			if err := lasts.Delete(t.Context()); err != nil {
				t.Error(err)
			}
			p.cleansUp(backend)
		})
	}
}

// ports are mapped on a node.
type ports struct {
	*node
	tools string
}

func (p *ports) mapping(container string, port uint16) portmap.Mapping {
	return portmap.Mapping{Container: container, HostPort: port, Pod: netip.AddrPortFrom(backends[0], 8080), Tools: p.tools}
}

// once maps a port, calls it, and undoes that.
func (p *ports) once(container string, port uint16) {
	p.Helper()
	m := p.mapping(container, port)
	if err := m.Add(p.Context()); err != nil {
		p.Fatal(err)
	}
	p.answers(m)
	if err := m.Delete(p.Context()); err != nil {
		p.Fatal(err)
	}
}

// callers are those of a mapped port: the node by 127.0.0.1, whose address must be masqueraded,
// and another program.
func (p *ports) callers(m portmap.Mapping) []traffic.Caller {
	p.Helper()
	host, err := p.testbed.Host(client)
	if err != nil {
		p.Fatal(err)
	}
	return []traffic.Caller{
		{Name: "the node", To: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), m.HostPort), Dial: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, to.String())
		}},
		traffic.From(host, "another program", client, netip.AddrPortFrom(nodeAddr, m.HostPort)),
	}
}

func (p *ports) answers(m portmap.Mapping) {
	p.Helper()
	for _, c := range p.callers(m) {
		p.until(c.Name+" is answered at "+c.To.String(), long, func() error { return c.Try(p.Context()) })
	}
}

// during maps other ports, and calls the one that lasts, until it is told that the swap is
// over. Then it says what failed meanwhile.
func (p *ports) during(lasts portmap.Mapping) (finish func(swap string)) {
	end := portmap.During(p.Context(), func(i int) portmap.Mapping { return p.mapping(fmt.Sprintf("during-%d", i), 31002) }, p.callers(lasts))
	return func(swap string) {
		p.Helper()
		done, failed := end()
		p.Logf("%s: %v", swap, done)
		if len(failed) > 0 {
			p.Errorf("%s: %d of %v failed, the first: %v", swap, len(failed), done, failed[0])
		}
	}
}

// cleansUp checks that what all modes share stays while a foreign rule leads there, and goes
// with the next cleanup.
func (p *ports) cleansUp(backend string) {
	p.Helper()
	has := func() bool {
		return exec.Command("iptables-"+backend, "-w", "-t", "nat", "-S", portmap.Chain).Run() == nil
	}
	left := p.mapping("left", 31003)
	if err := left.Add(p.Context()); err != nil {
		p.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		p.Fatal(err)
	}
	p.gone(long)
	if out, err := p.verb("cleanup"); err != nil || !strings.Contains(out, "keep nat "+portmap.Chain) || !has() {
		p.Errorf("cleaning up beside a mapped port says %s, %v; the chain is there: %v", out, err, has())
	}
	p.answers(left)
	if err := left.Delete(p.Context()); err != nil {
		p.Error(err)
	}
	if out, err := p.verb("cleanup"); err != nil || has() {
		p.Errorf("cleaning up says %s, %v; the chain is there: %v", out, err, has())
	}
}
