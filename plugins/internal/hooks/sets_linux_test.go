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
	missing := map[string]bool{}   // set types that this kernel does not have
	for _, s := range [][2]string{ // arguments of create, and entries
		{"test-ip hash:ip", "198.51.100.7"},
		{"test-net hash:net", "198.51.100.0/24,198.51.100.9 nomatch"},
		{"test-net6 hash:net family inet6", "2001:db8::/64"},
		{"test-port hash:ip,port", "198.51.100.7 tcp:80"},
		{"test-ports bitmap:port range 1-1000", "80"},
		{"test-netport hash:net,port", "198.51.100.0/24 tcp:80"},
		{"test-netnet hash:net,net", "198.51.100.0/24 10.0.0.0/8"},
		{"test-mark hash:ip,mark", "198.51.100.7 5"},
	} {
		name, _, _ := strings.Cut(s[0], " ")
		if out, err := exec.Command("ipset", append([]string{"create"}, strings.Fields(s[0])...)...).CombinedOutput(); err != nil {
			t.Logf("skipped, because this kernel lacks the set type: create %s: %v: %s", s[0], err, out)
			missing[name] = true
			continue
		}
		t.Cleanup(func() { _ = exec.Command("ipset", "destroy", name).Run() })
		for e := range strings.SplitSeq(s[1], ",") {
			words := strings.Fields(e)
			if len(words) == 2 && words[1] != "nomatch" { // an entry of two parts
				words = []string{strings.Join(words, ",")}
			}
			if out, err := exec.Command("ipset", append([]string{"add", name}, words...)...).CombinedOutput(); err != nil {
				t.Fatalf("add %s to %s: %v: %s", e, name, err, out)
			}
		}
	}
	for _, words := range []string{"create test-marks hash:ip,port skbinfo", "add test-marks 198.51.100.7,tcp:80 skbmark 0x10/0x30", "add test-marks 198.51.100.8,tcp:80"} {
		if out, err := exec.Command("ipset", strings.Fields(words)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", words, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("ipset", "destroy", "test-marks").Run() })
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
