// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestMachineAddrs: the addresses that mode ipvs gives to its device are not the node's.
func TestMachineAddrs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread, and its network namespace, end with the test
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for _, device := range []struct {
		name  string
		addrs []string
	}{{"eth0", []string{"10.0.0.5/32"}}, {ipvsDevice, []string{"10.0.0.5/32", "10.96.0.1/32"}}} {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device.name}, PeerName: "peer-" + device.name}
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
		for _, text := range device.addrs {
			addr, err := netlink.ParseAddr(text)
			if err == nil {
				err = netlink.AddrAdd(link, addr)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, err := machineAddrs(); fmt.Sprint(got) != "[10.0.0.5]" || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
