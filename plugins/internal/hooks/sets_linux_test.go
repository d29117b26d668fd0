// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/trace"
)

// TestKernelMember asks the kernel's own sets, of which another program's rule may ask.
func TestKernelMember(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes ipsets")
	}
	port := uint16(80)
	for _, s := range []struct {
		name, kind string
		family     uint8
		entry      netlink.IPSetEntry
	}{
		{"test-ip", "hash:ip", unix.AF_INET, netlink.IPSetEntry{IP: net.ParseIP("198.51.100.7")}},
		{"test-net", "hash:net", unix.AF_INET, netlink.IPSetEntry{IP: net.ParseIP("198.51.100.0"), CIDR: 24}},
		{"test-net6", "hash:net", unix.AF_INET6, netlink.IPSetEntry{IP: net.ParseIP("2001:db8::"), CIDR: 64}},
		{"test-port", "hash:ip,port", unix.AF_INET, netlink.IPSetEntry{IP: net.ParseIP("198.51.100.7"), Port: &port}},
	} {
		err := netlink.IpsetCreate(s.name, s.kind, netlink.IpsetCreateOptions{Family: s.family})
		if err != nil {
			t.Skipf("needs a kernel with ipsets of %s: %v", s.kind, err)
		}
		t.Cleanup(func() { _ = netlink.IpsetDestroy(s.name) })
		if err := netlink.IpsetAdd(s.name, &s.entry); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
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
		{"test-port", "src", "198.51.100.7", "10.0.0.1", "the tracer does not look up src in the set test-port, which is of hash:ip,port"},
		{"test-port", "src,dst", "198.51.100.7", "10.0.0.1", "yes"},
		{"test-port", "dst,dst", "198.51.100.7", "10.0.0.1", "no"},
		{"test-port", "src,src", "198.51.100.7", "10.0.0.1", "it asks for the caller's port, which is not known"},
		{"test-gone", "src", "198.51.100.7", "10.0.0.1", "ask for the set test-gone: "},
	} {
		in, err := member(tt.set, tt.parts, trace.Packet{From: netip.AddrPortFrom(netip.MustParseAddr(tt.from), 0), To: netip.AddrPortFrom(netip.MustParseAddr(tt.to), 80), Protocol: "tcp"})
		got := map[bool]string{true: "yes", false: "no"}[in]
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s of %s to %s in %s: %s, want %s", tt.parts, tt.from, tt.to, tt.set, got, tt.want)
		}
	}
}
