// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/oracle"
)

// TestKernelMember looks up packets in sets of the kernel.
func TestKernelMember(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes ipsets")
	}
	if _, err := exec.LookPath("ipset"); err != nil {
		t.Skip("needs ipset: apt-get install ipset")
	}
	missing := map[string]bool{} // sets of types that this kernel does not have
	for _, command := range []string{
		"create test-ip hash:ip", "add test-ip 198.51.100.7",
		"create test-net hash:net", "add test-net 198.51.100.0/24", "add test-net 198.51.100.9 nomatch",
		"create test-net6 hash:net family inet6", "add test-net6 2001:db8::/64",
		"create test-port hash:ip,port", "add test-port 198.51.100.7,tcp:80",
		"create test-ports bitmap:port range 1-1000", "add test-ports 80",
		"create test-netport hash:net,port", "add test-netport 198.51.100.0/24,tcp:80",
		"create test-netnet hash:net,net", "add test-netnet 198.51.100.0/24,10.0.0.0/8",
		"create test-mark hash:ip,mark", "add test-mark 198.51.100.7,5",
		"create test-marks hash:ip,port skbinfo", "add test-marks 198.51.100.7,tcp:80 skbmark 0x10/0x30", "add test-marks 198.51.100.8,tcp:80",
	} {
		words := strings.Fields(command)
		if missing[words[1]] {
			continue
		}
		switch out, err := exec.Command("ipset", words...).CombinedOutput(); {
		case words[0] == "add" && err != nil:
			t.Fatalf("%s: %v: %s", command, err, out)
		case err != nil:
			t.Logf("skipped, because this kernel lacks the set type: %s: %v: %s", command, err, out)
			missing[words[1]] = true
		case words[0] == "create":
			t.Cleanup(func() { _ = exec.Command("ipset", "destroy", words[1]).Run() })
		}
	}
	if missing["test-ip"] {
		t.Skip("needs a kernel with ipsets")
	}
	for _, tt := range []struct{ set, parts, from, to, want string }{
		{"test-ip", "src", "198.51.100.7", "10.0.0.1", "yes"},
		{"test-ip", "dst", "198.51.100.7", "10.0.0.1", "no"},
		{"test-ip", "src", "198.51.100.8", "10.0.0.1", "no"},
		{"test-net", "src", "198.51.100.8", "10.0.0.1", "yes"},
		{"test-net", "dst", "10.0.0.1", "198.51.100.200", "yes"},
		{"test-net", "src", "198.51.101.8", "10.0.0.1", "no"},
		{"test-net6", "src", "2001:db8::9", "fd00::1", "yes"},
		{"test-net6", "dst", "2001:db8::9", "fd00::1", "no"},
		{"test-net", "src", "198.51.100.9", "10.0.0.1", "no"},
		{"test-net6", "src", "198.51.100.7", "10.0.0.1", "no"},
		{"test-port", "src", "198.51.100.7", "10.0.0.1", "no"},
		{"test-port", "src,dst,dst", "198.51.100.7", "10.0.0.1", "yes"},
		{"test-ports", "dst", "198.51.100.7", "10.0.0.1", "yes"},
		{"test-netport", "src,dst", "198.51.100.200", "10.0.0.1", "yes"},
		{"test-netport", "dst,dst", "198.51.100.200", "10.0.0.1", "no"},
		{"test-netnet", "src,dst", "198.51.100.200", "10.0.0.1", "yes"},
		{"test-netnet", "dst,src", "198.51.100.200", "10.0.0.1", "no"},
		{"test-mark", "src,dst", "198.51.100.7", "10.0.0.1", "the set test-mark has the type hash:ip,mark, which is not supported"},
		{"test-port", "src,dst", "198.51.100.7", "10.0.0.1", "yes"},
		{"test-port", "dst,dst", "198.51.100.7", "10.0.0.1", "no"},
		{"test-port", "src,src", "198.51.100.7", "10.0.0.1", "it depends on the client's port, which is unknown"},
		{"test-gone", "src", "198.51.100.7", "10.0.0.1", "look for the set test-gone: "},
	} {
		if missing[tt.set] {
			continue
		}
		in, err := member(tt.set, tt.parts, oracle.Packet{From: netip.AddrPortFrom(netip.MustParseAddr(tt.from), 0), To: netip.AddrPortFrom(netip.MustParseAddr(tt.to), 80), Protocol: "tcp"})
		got := map[bool]string{true: "yes", false: "no"}[in]
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s of %s to %s in %s: %s, want %s", tt.parts, tt.from, tt.to, tt.set, got, tt.want)
		}
	}
	for to, want := range map[string]string{"198.51.100.7:80": "[16 48] <nil>", "198.51.100.8:80": "[0 0] <nil>", "198.51.100.9:80": "[0 0] ipset shows no add test-marks 198.51.100.9,tcp:80 in the set test-marks"} {
		bits, err := marked(t.Context(), "test-marks", "dst,dst", oracle.Packet{To: netip.MustParseAddrPort(to), Protocol: "tcp"})
		if got := fmt.Sprint(bits, " ", err); got != want {
			t.Errorf("the mark of %s: %s, want %s", to, got, want)
		}
	}
}
