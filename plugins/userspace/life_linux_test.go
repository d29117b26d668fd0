// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net/netip"
	"regexp"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/field"
)

// TestKernelRestart: a new process finds itself active, serves as soon as it has
// an update, and a client that kept sending datagrams to the old one reaches it too: its sockets stand at the ports to
// which the rules lead, and no rule is written.
func TestKernelRestart(t *testing.T) {
	onNode(t, func(n node) {
		dns := udp(svc("dns", "cluster-ip 172.30.0.10:53", podHere+":8080"))
		web := svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080")
		n.serve(dns, web)
		flow, err := n.host(outsider).Dial(n.Context(), "udp", netip.MustParseAddr(outsider), netip.MustParseAddrPort("172.30.0.10:53"))
		if err != nil {
			n.Fatal(err)
		}
		defer flow.Close()
		if got, err := hears(flow); err != nil || got != podHere+":8080" {
			n.Fatalf("at first: %q, %v", got, err)
		}
		ruled := func() string {
			program := "iptables-" + string(n.kernel.backend)
			return n.kernel.run(program, "-t", "nat", "-S") + n.kernel.run(program, "-t", "filter", "-S")
		}
		before := ruled()
		n.stage.Close() // the rules stay, as when a process is killed
		n.stage.plugin = newPlugin(n.kernel.dir)
		n.begin()
		n.must(sdk.Update{Full: true, Node: n.facts(), Set: []sdk.Service{dns, web}})
		if now := ruled(); now != before {
			n.Errorf("the rules are\n%s\nand were\n%s", now, before)
		}
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		eventually(n.T, func() error {
			got, err := hears(flow)
			if err == nil && got != podHere+":8080" {
				err = fmt.Errorf("found %q", got)
			}
			return err
		})
	})
}

// TestKernelField: cases from public reports.
func TestKernelField(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		p := newPlugin(k.dir)
		defer p.Close()
		if _, err := p.Configure(k.Context(), sdk.Setup{Options: k.options()}); err != nil {
			k.Fatal(err)
		}
		field.Check(k.T, g, p, true)
		field.Beside(k.T, g, p, "iptables-"+string(k.backend), true, true)
	})
}

// TestKernelCallersWait: a client that calls while the relay is away is not refused, and is
// answered by the one that comes next.
func TestKernelCallersWait(t *testing.T) {
	onNode(t, func(n node) {
		web := svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080")
		n.serve(web)
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		if !n.way.redirected()[0].rules.node.matchesSockets {
			t.Skip("needs xt_socket: this kernel cannot tell whether a socket is there")
		}
		before := n.way.redirected()[0].portals.Ports()
		if err := n.Close(); err != nil {
			n.Fatal(err)
		}
		called := make(chan error, 1)
		go func() { // ends when it is answered, or after the timeout
			conn, err := n.host(outsider).Dial(n.Context(), "tcp", netip.MustParseAddr(outsider), netip.MustParseAddrPort("172.30.0.41:80"))
			if err == nil {
				defer conn.Close()
				_, err = hears(conn)
			}
			called <- err
		}()
		dropped := regexp.MustCompile(`(?m)^\s*[1-9]\d*\s+\d+\s+DROP\s`)
		eventually(n.T, func() error {
			counts := n.kernel.run("iptables-"+string(n.kernel.backend), "-t", "filter", "-nvxL", ownSocket.Chain)
			if !dropped.MatchString(counts) {
				return fmt.Errorf("no client called:\n%s", counts)
			}
			return nil
		})
		n.stage.plugin = newPlugin(n.kernel.dir)
		n.begin()
		n.must(sdk.Update{Full: true, Node: n.facts(), Set: []sdk.Service{web}})
		if after := n.way.redirected()[0].portals.Ports(); after != before {
			n.Errorf("the doors are at %v, and were at %v", after, before)
		}
		if err := <-called; err != nil {
			n.Errorf("a client that called meanwhile was not answered: %v", err)
		}
	})
}

// TestKernelFailedWrite: rules that could not be written are at the next update,
// and so is what hung on them.
func TestKernelFailedWrite(t *testing.T) {
	onNode(t, func(n node) {
		web := svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080")
		n.serve(web)
		tool := &n.way.redirected()[0].rules.Tool
		prefix := tool.Prefix
		n.do(func() error { tool.Prefix = "/nowhere/iptables"; return nil })
		moved := svc("web", "cluster-ip 172.30.0.42:80", podHere+":8080")
		moved.Normalize()
		u := sdk.Update{From: n.rev, To: n.rev + 1, Set: []sdk.Service{moved}}
		if _, err := n.Sync(n.Context(), u); err == nil {
			n.Fatal("nothing was written, and no error")
		}
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		n.do(func() error { tool.Prefix = prefix; return nil })
		n.must(sdk.Update{Set: []sdk.Service{moved}})
		n.finds("tcp", "172.30.0.42:80", podHere+":8080")
		if got, err := n.calls("tcp", "172.30.0.41:80"); err == nil {
			n.Errorf("%s still answers at the old address", got)
		}
		n.do(func() error {
			if open := n.way.redirected()[0].open; len(open) != 1 {
				n.Errorf("sockets at %v", open)
			}
			return nil
		})
	})
}
