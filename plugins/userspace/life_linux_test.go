// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

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

// TestKernelWithoutUpdate: a process that has had no update yet writes nothing, whatever its
// role (its monitor neither: TestRoleBeforeFirstUpdate of the frame). A standby writes all its rules at once, and a client that calls while one process
// succeeds another finds what the one before wrote.
func TestKernelWithoutUpdate(t *testing.T) {
	onKernel(t, func(k kernel) {
		tables := func() (all string) {
			for _, table := range []string{"nat", "filter"} {
				all += k.run("iptables-"+string(k.backend), "-t", table, "-S")
			}
			return all
		}
		begin := func(role sdk.Role) *plugin {
			d := newPlugin(k.dir)
			k.Cleanup(func() { _ = d.Close() })
			if _, err := d.Configure(k.Context(), sdk.Setup{Options: k.options()}); err != nil {
				k.Fatal(err)
			}
			if err := d.SetRole(k.Context(), role); err != nil {
				k.Fatal(err)
			}
			return d
		}
		before := tables()
		first := begin(sdk.Standby)
		if after := tables(); after != before {
			k.Errorf("without an update, it wrote\n%s", after)
		}
		web := svc("web", "cluster-ip 172.30.0.41:80", "10.128.1.5:8080")
		full := sdk.Update{Full: true, Node: &sdk.Node{Name: "n1", MasqueradeBit: 14}, Set: []sdk.Service{web}}
		if _, err := first.Sync(k.Context(), full); err != nil || tables() == before {
			k.Fatalf("after an update with a Service, there is\n%s%v", tables(), err)
		}
		if err := first.SetRole(k.Context(), sdk.Active); err != nil {
			k.Fatal(err)
		}
		before = tables()
		_ = first.Close()
		next := begin(sdk.Active)
		if after := tables(); after != before {
			k.Errorf("its successor had no update, and made of\n%s\n%s", before, after)
		}
		if _, err := next.Sync(k.Context(), full); err != nil || !strings.Contains(tables(), "172.30.0.41") {
			k.Errorf("after the same update, there is\n%s%v", tables(), err)
		}
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

// TestKernelEstablished connections outlive their frontend, every role, and rules
// that another program removed.
func TestKernelEstablished(t *testing.T) {
	onNode(t, func(n node) {
		web := svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080")
		n.serve(web)
		conn, err := n.host(outsider).Dial(n.Context(), "tcp", netip.MustParseAddr(outsider), netip.MustParseAddrPort("172.30.0.41:80"))
		if err != nil {
			n.Fatal(err)
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		_ = conn.SetDeadline(time.Now().Add(timeout))
		lives := func(when string) {
			n.Helper()
			if _, err := in.ReadString('\n'); err != nil { // the endpoint speaks first
				n.Fatalf("%s: %v", when, err)
			}
			_, _ = io.WriteString(conn, "who\n")
		}
		lives("at first")
		n.must(sdk.Update{Delete: []sdk.Name{web.Name}})
		lives("without its Service")
		for _, role := range []sdk.Role{sdk.Draining, sdk.Standby, sdk.Yielded, sdk.Active} {
			n.role(role)
			lives(role.String())
		}
		n.kernel.flush()
		lives("without rules")
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
