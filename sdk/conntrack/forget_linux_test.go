// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// TestKernelForget creates three flows in its own namespace: to an endpoint that is gone, to an
// endpoint that serves, and to no Service.
func TestKernelForget(t *testing.T) {
	ownNamespace(t)
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "10.1.0.1", "10.1.0.9", "198.51.100.1"} {
		run(t, "ip", "address", "add", a+"/32", "dev", "lo")
	}
	run(t, "iptables", "-t", "nat", "-A", "OUTPUT", "-p", "udp", "-d", "10.0.0.1", "-j", "DNAT", "--to-destination", "10.1.0.9:53")
	run(t, "iptables", "-t", "nat", "-A", "OUTPUT", "-p", "udp", "-d", "10.0.0.2", "-j", "DNAT", "--to-destination", "10.1.0.1:53")
	for _, to := range []string{"10.0.0.1:53", "10.0.0.2:53", "198.51.100.1:53"} {
		send(t, to)
	}

	served := Serving(sdk.IPv4, []sdk.Service{udp("gone", "10.0.0.1:53", "10.1.0.1:53"), udp("serves", "10.0.0.2:53", "10.1.0.1:53")}, nil)
	steps := 0
	n, err := Forget(sdk.IPv4, served.Telling(func() { steps++ }))
	if steps < 3 {
		t.Errorf("step was called for %d flows, want 3", steps)
	}
	if err != nil || n != 1 {
		t.Fatalf("forgot %d flows, error %v; want the one whose endpoint is gone", n, err)
	}
	left := map[string]bool{}
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flows {
		left[f.Forward.DstIP.String()] = true
	}
	if left["10.0.0.1"] || !left["10.0.0.2"] || !left["198.51.100.1"] {
		t.Errorf("flows left lead to %v; want 10.0.0.2 and 198.51.100.1", left)
	}
}

// TestKernelForgetEarly: of connections to a frontend only the unanswered one is deleted.
func TestKernelForgetEarly(t *testing.T) {
	ownNamespace(t)
	run(t, "ip", "address", "add", "10.0.0.1/32", "dev", "lo")
	run(t, "iptables", "-A", "OUTPUT", "-m", "conntrack", "--ctstate", "NEW") // makes the kernel track connections
	answered, err := net.Listen("tcp4", "10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer answered.Close()
	conn, err := net.Dial("tcp4", "10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run(t, "ip", "link", "add", "nowhere", "type", "veth", "peer", "name", "nobody")
	run(t, "ip", "link", "set", "nowhere", "up")
	run(t, "ip", "link", "set", "nobody", "up")
	for _, to := range []string{"10.0.0.2", "10.0.0.3"} {
		run(t, "ip", "route", "add", to, "dev", "nowhere")
		run(t, "ip", "neighbour", "add", to, "lladdr", "02:00:00:00:00:01", "dev", "nowhere", "nud", "permanent")
		if conn, err := net.DialTimeout("tcp4", to+":80", 100*time.Millisecond); err == nil {
			conn.Close()
			t.Fatalf("%s was answered", to)
		}
	}
	web := udp("web", "10.0.0.1:80")
	web.Name.Protocol = sdk.TCP
	web.Frontends = append(web.Frontends, sdk.Frontend{Kind: sdk.ExternalIP, Addr: addrPort("10.0.0.2:80")})
	n, err := ForgetEarly(sdk.IPv4, []sdk.Service{web}, nil, func() {})
	if err != nil || n != 1 {
		t.Errorf("forgot %d connections, error %v; want the one to 10.0.0.2, which nothing answered", n, err)
	}
}

// TestKernelForgetFailed: only TCP connections are deleted that were reset or never answered, and
// whose replies come from a port without a socket.
func TestKernelForgetFailed(t *testing.T) {
	ownNamespace(t)
	listener := func(addr string) net.Listener {
		l, err := net.Listen("tcp4", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	gone, there := listener("127.0.0.1:8001"), listener("127.0.0.1:8002")
	run(t, "iptables", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-d", "10.0.0.1", "--dport", "80", "-j", "REDIRECT", "--to-ports", "8001")
	run(t, "iptables", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-d", "10.0.0.1", "--dport", "81", "-j", "REDIRECT", "--to-ports", "8002")
	run(t, "ip", "address", "add", "10.0.0.1/32", "dev", "lo")
	for _, c := range []struct {
		to    string
		at    net.Listener
		reset bool
	}{{"10.0.0.1:80", gone, true}, {"10.0.0.1:80", gone, false}, {"10.0.0.1:81", there, true}} {
		meet(t, c.to, c.at, c.reset)
	}
	run(t, "iptables", "-A", "INPUT", "-p", "tcp", "--syn", "-j", "DROP")
	for _, to := range []string{"10.0.0.1:80", "10.0.0.1:81"} {
		if conn, err := net.DialTimeout("tcp4", to, time.Second); err == nil {
			conn.Close()
			t.Fatalf("%s was answered", to)
		}
	}
	n, err := ForgetFailed(sdk.IPv4, func(reply netip.AddrPort) bool { return reply.Port() == 8001 })
	if err != nil || n != 2 {
		t.Fatalf("forgot %d connections, error %v; want the one that was reset and the one that was not answered, at a port that is gone", n, err)
	}
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil || len(flows) != 3 {
		t.Errorf("there are %v, %v; want the one that was not reset, and the two at the port that is there", flows, err)
	}
}

// meet opens a connection, which the listener's side closes.
func meet(t *testing.T, to string, l net.Listener, reset bool) {
	t.Helper()
	client, err := net.Dial("tcp4", to)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if reset {
		_ = server.(*net.TCPConn).SetLinger(0)
	}
	server.Close()
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the connection did not end")
	}
}

// ownNamespace moves the test's thread into a new network namespace until it ends. It skips the test
// without root.
func ownNamespace(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	mine, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Set(before); err != nil {
			t.Fatal(err) // the thread stays locked, and ends with the test
		}
		_ = mine.Close()
		_ = before.Close()
		runtime.UnlockOSThread()
	})
	run(t, "ip", "link", "set", "lo", "up")
}

func run(t *testing.T, command ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", command, err, out)
	}
}

func send(t *testing.T, to string) {
	t.Helper()
	conn, err := net.Dial("udp4", to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}
