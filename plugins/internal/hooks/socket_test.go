// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// listedAt is an address as the kernel prints it on this machine.
func listedAt(at netip.AddrPort) string {
	bytes := at.Addr().AsSlice()
	for i := 0; i < len(bytes); i += 4 {
		binary.BigEndian.PutUint32(bytes[i:], binary.NativeEndian.Uint32(bytes[i:]))
	}
	return fmt.Sprintf("%s:%04X", strings.ToUpper(hex.EncodeToString(bytes)), at.Port())
}

// How sockets take what is sent to an address, by the kernel's lists.
func TestTakenBy(t *testing.T) {
	const tcp, udp = "tcp", "udp"
	for _, tt := range []struct {
		why, protocol, sockets, to string
		want                       taking
	}{
		{"it listens there", tcp, "127.0.0.1:80=0A", "127.0.0.1:80", byAddress},
		{"at all addresses", tcp, "0.0.0.0:80=0A", "192.0.2.1:80", byWildcard},
		{"both", tcp, "0.0.0.0:80=0A 192.0.2.1:80=0A", "192.0.2.1:80", byAddress},
		{"another port", tcp, "0.0.0.0:81=0A", "192.0.2.1:80", byNothing},
		{"another address", tcp, "192.0.2.2:80=0A", "192.0.2.1:80", byNothing},
		{"a connection does not listen", tcp, "192.0.2.1:80=01", "192.0.2.1:80", byNothing},
		{"and what stands behind one is not read", tcp, "192.0.2.1:81=01 192.0.2.1:80=0A", "192.0.2.1:80", byNothing},
		{"IPv6", tcp, "[2001:db8::1]:80=0A", "[2001:db8::1]:80", byAddress},
		{"all of IPv6", tcp, "[::]:80=0A", "[2001:db8::1]:80", byWildcard},
		{"IPv4 at a socket of IPv6", tcp, "[::ffff:192.0.2.1]:80=0A", "192.0.2.1:80", byAddress},
		{"UDP", udp, "192.0.2.1:53=01 192.0.2.1:53=07", "192.0.2.1:53", byAddress},
		{"UDP that is connected", udp, "192.0.2.1:53=01", "192.0.2.1:53", byNothing},
		{"no line of a socket", tcp, "", "192.0.2.1:80", byNothing},
	} {
		list := "  sl  local_address rem_address   st\n"
		for i, s := range strings.Fields(tt.sockets) {
			at, state, _ := strings.Cut(s, "=")
			list += fmt.Sprintf("%4d: %s 00000000:0000 %s 00000000:00000000 0\n", i, listedAt(netip.MustParseAddrPort(at)), state)
		}
		got, err := takenBy(strings.NewReader(list+"odd\n"), tt.protocol, netip.MustParseAddrPort(tt.to))
		if err != nil || got != tt.want {
			t.Errorf("%s: %d, %v; want %d", tt.why, got, err, tt.want)
		}
	}
}
