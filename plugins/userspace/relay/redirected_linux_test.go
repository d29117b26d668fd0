// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// redirectTo adds a rule that redirects packets of the node from an address to a local port, and a route to the address.
func redirectTo(t *testing.T, addr string, port uint16) {
	t.Helper()
	rule := func(command string) {
		words := strings.Fields(fmt.Sprintf("-w -t nat %s OUTPUT -p tcp -d %s -j REDIRECT --to-ports %d", command, addr, port))
		if out, err := exec.Command("iptables", words...).CombinedOutput(); err != nil {
			t.Fatalf("iptables %q: %v: %s", words, err, out)
		}
	}
	rule("-A")
	t.Cleanup(func() { rule("-D") })
	if out, err := exec.Command("ip", "route", "replace", addr, "dev", "lo", "src", "127.0.0.1").CombinedOutput(); err != nil {
		t.Fatalf("a route to %s: %v: %s", addr, err, out)
	}
}

// Connections to addresses that the machine does not have reach the Socket for the address, or else that for all addresses.
// A new Redirected opens its listeners at the preferred ports.
func TestKernelRedirected(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes rules, in a namespace of its own")
	}
	if _, err := exec.LookPath("iptables"); err != nil {
		t.Skip("needs iptables: ", err)
	}
	exact, every := at(2, 8000), at(3, 8000)
	endpoint(t, exact, nil)
	endpoint(t, every, nil)
	r := New()
	defer r.Stop()
	x := r.NewRedirected(netip.IPv4Unspecified())
	defer func() { x.Close() }()
	listen := func(addr, endpoint string) Socket {
		t.Helper()
		s, err := x.ListenTCP(t.Context(), addrPortOf(addr))
		if err != nil {
			t.Fatal(err)
		}
		web := svc("web", "node-port "+addr, endpoint)
		s.Serve(&Target{NewService(web), web.Frontends[0]})
		return s
	}
	named := listen("192.0.2.1:80", exact)
	listen("0.0.0.0:80", every)
	ports := x.Ports()
	redirectTo(t, "192.0.2.0/24", ports[sdk.OnNode])
	finds(t, "192.0.2.1:80", exact)
	finds(t, "192.0.2.2:80", every)
	if _, err := ask("192.0.2.1:81"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("at a port without a Socket: %v", err)
	}
	named.Close()
	finds(t, "192.0.2.1:80", every)

	x.Close()
	if _, err := ask("192.0.2.1:80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Close: %v", err)
	}
	x = r.NewRedirected(netip.IPv4Unspecified())
	x.Prefer(ports)
	if listen("0.0.0.0:80", every); x.Ports() != ports {
		t.Errorf("the ports are %v, want %v", x.Ports(), ports)
	}
	finds(t, "192.0.2.1:80", every)
}
