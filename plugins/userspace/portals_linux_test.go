// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

// Addresses of the node, of a pod and of another machine.
const (
	nodeAddr = "192.0.2.10"
	podHere  = "10.180.0.1"
	outsider = "198.18.0.7"
)

// A node is a relay with rules, and hosts around it.
type node struct {
	*stage
	kernel kernel
	world  *netns.Testbed
}

// onNode runs f with each backend, and with a TCP and a UDP endpoint at podHere:8080.
func onNode(t *testing.T, f func(node)) {
	g := world(t)
	onKernel(t, func(k kernel) {
		if err := g.Own(netip.MustParseAddr(nodeAddr)); err != nil {
			k.Fatal(err)
		}
		n := node{world: g, kernel: k, stage: &stage{T: k.T, plugin: newPlugin(k.dir)}}
		k.T.Cleanup(func() { n.stage.Close() })
		h := n.host(podHere)
		for _, protocol := range []sdk.Protocol{sdk.TCP, sdk.UDP} {
			end, err := netns.Answer(k.Context(), h, protocol, netip.MustParseAddrPort(podHere+":8080"))
			if err != nil {
				k.Fatal(err)
			}
			k.T.Cleanup(func() { end.Close() })
		}
		n.begin()
		f(n)
	})
}

func (n node) host(addr string) *netns.Host {
	n.Helper()
	h, err := n.world.Host(netip.MustParseAddr(addr))
	if err != nil {
		n.Fatal(err)
	}
	return h
}

// begin begins a session.
func (n node) begin() {
	n.Helper()
	n.stage.rev = 0
	if _, err := n.Configure(n.Context(), sdk.Setup{Options: n.kernel.options()}); err != nil {
		n.Fatal(err)
	}
}

func (n node) facts() *sdk.Node {
	return &sdk.Node{
		Name: "n1", Addrs: addrs(nodeAddr), MasqueradeBit: 14,
		NodePorts: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
	}
}

// restart starts a new process that serves services.
func (n node) restart(services ...sdk.Service) {
	n.Helper()
	n.stage.plugin = newPlugin(n.kernel.dir)
	n.begin()
	n.serve(services...)
}

// serve sends services in a Full, and makes the relay active.
func (n node) serve(services ...sdk.Service) {
	n.Helper()
	n.must(sdk.Update{Full: true, Node: n.facts(), Set: services})
	n.role(sdk.Active)
}

// call returns the name of the endpoint that answers an outsider.
func (n node) call(network, to string) (string, error) {
	n.Helper()
	return n.callFrom(outsider, network, to)
}

func (n node) callFrom(from, network, to string) (string, error) {
	n.Helper()
	conn, err := n.host(from).Dial(n.Context(), network, netip.MustParseAddr(from), netip.MustParseAddrPort(to))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return askName(conn)
}

// askName returns the name of the endpoint of a connection, if it answers within a few seconds.
func askName(conn net.Conn) (string, error) { return askWithin(5*time.Second, conn) }

func askWithin(wait time.Duration, conn net.Conn) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(wait))
	if _, err := fmt.Fprintln(conn, "who"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	name, _, _ := strings.Cut(line, " ")
	return name, err
}

// finds waits until an endpoint answers an outsider.
func (n node) finds(network, to, endpoint string) {
	n.Helper()
	n.findsFrom(outsider, network, to, endpoint)
}

func (n node) findsFrom(from, network, to, endpoint string) {
	n.Helper()
	eventually(n.T, func() error {
		if got, err := n.callFrom(from, network, to); err != nil || got != endpoint {
			return fmt.Errorf("from %s %s %s: found %q, %v, want %s", from, network, to, got, err, endpoint)
		}
		return nil
	})
}

// Node ports are served at link-local addresses, too. If a node has no other addresses, its Services are served nevertheless.
func TestKernelLinkAddresses(t *testing.T) {
	onNode(t, func(n node) {
		const pod6 = "[fd00:10:180::1]:8080"
		end, err := netns.Answer(n.Context(), n.host("fd00:10:180::1"), sdk.TCP, netip.MustParseAddrPort(pod6))
		if err != nil {
			n.Fatal(err)
		}
		defer end.Close()
		for _, a := range []string{"169.254.7.7/32", "fe80::7:7/128"} {
			n.kernel.run("ip", "address", "replace", a, "dev", "lo")
			defer n.kernel.run("ip", "address", "del", a, "dev", "lo")
		}
		facts := n.facts()
		facts.NodePorts = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
		six := svc("web", "node-port [::]:30080", pod6)
		n.must(sdk.Update{Full: true, Node: facts, Set: []sdk.Service{svc("web", "node-port 0.0.0.0:30080, cluster-ip 172.30.0.41:80", podHere+":8080"), six}})
		n.role(sdk.Active)
		n.finds("tcp", "169.254.7.7:30080", podHere+":8080")
		if got, err := ask("[fe80::7:7%lo]:30080"); !strings.HasPrefix(got, pod6) {
			n.Errorf("the node connects to its link-local address: %q, %v", got, err)
		}
		for _, a := range []string{"169.254.9.9", "10.9.9.9"} { // packets are redirected to another address if there is one
			m := newMachine(*facts, []address{{prefix: netip.MustParsePrefix("169.254.7.7/32")}, {prefix: netip.MustParsePrefix(a + "/32")}})
			if to := m.reachable(sdk.IPv4); a == "10.9.9.9" && to.String() != a || to.IsLoopback() {
				n.Errorf("with %s packets are redirected to %s", a, to)
			}
		}
	})
}

// A client reaches our sockets only through Services.
func TestKernelOnlyByRules(t *testing.T) {
	onNode(t, func(n node) {
		dns := udp(svc("dns", "cluster-ip 172.30.0.10:53", podHere+":8080"))
		n.serve(dns, svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080"))
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		n.finds("udp", "172.30.0.10:53", podHere+":8080")
		for _, role := range []sdk.Role{sdk.Active, sdk.Standby, sdk.Draining} {
			n.role(role)
			for _, port := range n.way.redirected()[0].portals.Ports() {
				if got, err := n.call("tcp", fmt.Sprintf("%s:%d", nodeAddr, port)); !errors.Is(err, syscall.ECONNREFUSED) {
					n.Errorf("%s: tcp port %d: %q, %v", role, port, got, err)
				}
			}
			port := n.socket(place{sdk.UDP, netip.MustParseAddrPort("172.30.0.10:53")}).Port()
			if got, err := n.call("udp", fmt.Sprintf("%s:%d", nodeAddr, port)); !errors.Is(err, syscall.ECONNREFUSED) {
				n.Errorf("%s: udp port %d: %q, %v", role, port, got, err)
			}
		}
	})
}

// The description has fewer limits with rules than without.
func TestKernelDescription(t *testing.T) {
	onKernel(t, func(k kernel) {
		for options, want := range map[string]int{string(k.options()): 2, `{"redirect": "never"}`: 4, ``: 2} {
			d := newPlugin(k.dir)
			defer d.Close()
			got, err := d.Configure(k.Context(), sdk.Setup{Options: []byte(options)})
			if err != nil || len(got.Limits) != want {
				k.Errorf("%s: limits %v, %v", options, got.Limits, err)
			}
		}
	})
}

// Pods are recognized by the device by which their datagrams arrive.
func TestKernelPodsByDevice(t *testing.T) {
	onNode(t, func(n node) {
		dns := udp(svc("dns", "node-port 0.0.0.0:30053 local", podHere+":8080"))
		for device, found := range map[string]bool{"cbr0": true, "eth9": false} {
			from := netip.MustParseAddr("10.180.0.77")
			h, err := n.world.Behind(device, from)
			if err != nil {
				n.Fatal(err)
			}
			facts := n.facts()
			facts.Pods = sdk.Pods{Bridge: "cbr0"}
			n.must(sdk.Update{Full: true, Node: facts, Set: []sdk.Service{dns}}) // without a local endpoint, only pods are served
			n.role(sdk.Active)
			conn, err := h.Dial(n.Context(), "udp", from, netip.MustParseAddrPort(nodeAddr+":30053"))
			if err != nil {
				n.Fatal(err)
			}
			defer conn.Close()
			wait := timeout
			if !found {
				wait = time.Second
			}
			if got, err := askWithin(wait, conn); found != (err == nil && got == podHere+":8080") {
				n.Errorf("device %s: %q, %v", device, got, err)
			}
		}
	})
}
