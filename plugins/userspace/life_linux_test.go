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

// A new process is Active by the rules in the kernel, serves after its first update, and writes no rule. Its UDP sockets have
// the ports of the former process, so the datagrams of a flow reach it.
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
		if got, err := askName(flow); err != nil || got != podHere+":8080" {
			n.Fatalf("at first: %q, %v", got, err)
		}
		rules := func() string {
			program := "iptables-" + string(n.kernel.backend)
			return n.kernel.run(program, "-t", "nat", "-S") + n.kernel.run(program, "-t", "filter", "-S")
		}
		before := rules()
		n.stage.Close() // the rules stay, as after a kill
		n.stage.plugin = newPlugin(n.kernel.dir)
		n.begin()
		n.must(sdk.Update{Full: true, Node: n.facts(), Set: []sdk.Service{dns, web}})
		if now := rules(); now != before {
			n.Errorf("the rules are\n%s\nand were\n%s", now, before)
		}
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		eventually(n.T, func() error {
			got, err := askName(flow)
			if err == nil && got != podHere+":8080" {
				err = fmt.Errorf("found %q", got)
			}
			return err
		})
	})
}

// TestKernelField checks cases from public reports.
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

// A client that connects while no relay runs is not refused, and the next relay answers it.
func TestKernelClientsWait(t *testing.T) {
	onNode(t, func(n node) {
		web := svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080")
		n.serve(web)
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		if !n.way.redirected()[0].rules.node.matchesSockets {
			t.Skip("needs xt_socket, to match packets for which there is a socket")
		}
		before := n.way.redirected()[0].portals.Ports()
		if err := n.Close(); err != nil {
			n.Fatal(err)
		}
		connected := make(chan error, 1)
		go func() { // ends with the answer, or after a timeout
			_, err := n.call("tcp", "172.30.0.41:80")
			connected <- err
		}()
		dropped := regexp.MustCompile(`(?m)^\s*[1-9]\d*\s+\d+\s+DROP\s`)
		eventually(n.T, func() error {
			counts := n.kernel.run("iptables-"+string(n.kernel.backend), "-t", "filter", "-nvxL", ownSocket.Chain)
			if !dropped.MatchString(counts) {
				return fmt.Errorf("no packet was dropped:\n%s", counts)
			}
			return nil
		})
		n.stage.plugin = newPlugin(n.kernel.dir)
		n.begin()
		n.must(sdk.Update{Full: true, Node: n.facts(), Set: []sdk.Service{web}})
		if after := n.way.redirected()[0].portals.Ports(); after != before {
			n.Errorf("the ports are %v, and were %v", after, before)
		}
		if err := <-connected; err != nil {
			n.Errorf("the client was not answered: %v", err)
		}
	})
}

// If rules cannot be written, no socket is closed. The next update writes them.
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
			n.Fatal("rules could not be written, but there was no error")
		}
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		n.do(func() error { tool.Prefix = prefix; return nil })
		n.must(sdk.Update{Set: []sdk.Service{moved}})
		n.finds("tcp", "172.30.0.42:80", podHere+":8080")
		if got, err := n.call("tcp", "172.30.0.41:80"); err == nil {
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
