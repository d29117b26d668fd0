// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// What this process listens on is in the kernel's tables, as its own; what it is only
// connected by is not.
func TestListening(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		l, err := net.Listen(network, "localhost:0")
		if err != nil {
			t.Logf("%s: %v", network, err)
			continue
		}
		defer l.Close()
		conn, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		checkListening(t, l.Addr().String(), conn.LocalAddr().String(), sdk.TCP)
	}
	p, err := net.ListenPacket("udp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn, err := net.Dial("udp4", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	checkListening(t, p.LocalAddr().String(), conn.LocalAddr().String(), sdk.UDP)
}

func checkListening(t *testing.T, listens, connected string, protocol sdk.Protocol) {
	t.Helper()
	all := listening()
	at := func(addr string) int {
		return slices.IndexFunc(all, func(s Socket) bool { return s.Addr.String() == addr && s.Protocol == protocol })
	}
	i := at(listens)
	if i < 0 || at(connected) >= 0 {
		t.Fatalf("%s is at %d, %s at %d", listens, i, connected, at(connected))
	}
	inode := all[i].Inode
	want := map[uint64]bool{inode: true}
	if o := owners(want, nil)[inode]; !o.ours {
		t.Errorf("%s is %+v", listens, o)
	}
	if found := owners(map[uint64]bool{1: true}, nil)[1]; found.ours || found.name != "" {
		t.Errorf("a socket of nobody is %+v", found)
	}
	if found := owners(map[uint64]bool{1: true}, []int{0})[1]; !found.ours {
		t.Errorf("beside a plugin that cannot be seen, a socket of nobody is %+v", found)
	}
	if os.Getuid() == 0 && !strings.Contains(nameOf(os.Getpid()), "pid") {
		t.Errorf("this process is %q", nameOf(os.Getpid()))
	}
}
