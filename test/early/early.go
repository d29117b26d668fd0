// SPDX-License-Identifier: Apache-2.0

// Package early checks, for any dataplane, that a client which called before a Service was there is served.
package early

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
)

// Served has a client of the node connect to an external address that nobody has, and gives the dataplane
// the Service meanwhile: the kernel remembers that it sent the first packet elsewhere, and the connection must be
// served nevertheless. update is called twice: without the Service, and with it.
func Served(t *testing.T, g *netns.Testbed, update func(sdk.Update)) {
	t.Helper()
	all := sdktest.Scenarios()
	s, left := g.Place(all[slices.IndexFunc(all, func(s sdktest.Scenario) bool { return s.Name == "external-ip" })])
	if len(left) > 0 {
		t.Fatal(left)
	}
	web := s.Services[0]
	for _, ep := range web.Cluster {
		host, err := g.Host(ep.Addr.Addr())
		if err != nil {
			t.Fatal(err)
		}
		l, err := netns.Answer(t.Context(), host, sdk.TCP, ep.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	external := web.Frontends[slices.IndexFunc(web.Frontends, func(f sdk.Frontend) bool { return f.Kind == sdk.ExternalIP })].Addr
	node := g.Node()
	run := func(command ...string) (out []byte, err error) {
		err = node.Do(func() (err error) {
			out, err = exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
			return err
		})
		return out, err
	}
	for _, command := range []string{ // what is sent there is heard by nobody
		"ip link add nowhere type veth peer name nobody", "ip link set nowhere up", "ip link set nobody up",
		"ip route replace " + external.Addr().String() + "/32 dev nowhere",
		"ip neighbour replace " + external.Addr().String() + " lladdr 02:00:00:00:00:01 dev nowhere nud permanent",
	} {
		if out, err := run(strings.Fields(command)...); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	defer func() { _, _ = run("ip", "link", "del", "nowhere") }()

	services := s.Services
	s.Services = nil
	update(s.Update(1))
	answered := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conn, err := node.Dial(ctx, "tcp4", s.Node.Addrs[0], external)
		if err == nil {
			conn.Close()
		}
		answered <- err
	}()
	eventually.True(t, "the kernel remembers the first packet", func() bool {
		out, err := run("conntrack", "-L", "-d", external.Addr().String())
		return err == nil && strings.Contains(string(out), "[UNREPLIED]")
	})
	s.Services = services
	update(s.Update(2))
	if err := <-answered; err != nil {
		t.Errorf("the client that was there before the Service: %v", err)
	}
}
