// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// program loads one that does nothing, called "nothing", for a place of that kind, and returns its descriptor.
func program(t *testing.T, kind, attachType uint32, answer int32) int {
	t.Helper()
	type instruction struct {
		op, regs uint8
		off      int16
		imm      int32
	}
	code, license := &[2]instruction{{0xb7, 0, 0, answer}, {0x95, 0, 0, 0}}, &[4]byte{'G', 'P', 'L'} // r0 = answer; exit
	var held runtime.Pinner
	held.Pin(code)
	held.Pin(license)
	defer held.Unpin()
	load := struct {
		kind, count           uint32
		code, license         uint64
		logLevel, logSize     uint32
		log                   uint64
		version, flags        uint32
		name                  [16]byte
		ifindex, expectedType uint32
	}{kind: kind, count: uint32(len(code)), code: uint64(uintptr(unsafe.Pointer(code))), license: uint64(uintptr(unsafe.Pointer(license))), name: [16]byte{'n', 'o', 't', 'h', 'i', 'n', 'g'}, expectedType: attachType}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&load)), unsafe.Sizeof(load))
	if errno != 0 {
		t.Skipf("needs a kernel that takes a BPF program of kind %d: %v", kind, errno)
	}
	t.Cleanup(func() { _ = unix.Close(int(fd)) })
	return int(fd)
}

// attach attaches a program to a cgroup or an interface.
func attach(t *testing.T, target, fd int, attachType uint32) {
	t.Helper()
	to := struct {
		target, fd, attachType, flags, replaces, relative uint32
		revision                                          uint64
	}{target: uint32(target), fd: uint32(fd), attachType: attachType}
	if _, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_ATTACH, uintptr(unsafe.Pointer(&to)), unsafe.Sizeof(to)); errno != 0 {
		t.Skipf("needs a kernel in which a program is attached so (%d): %v", attachType, errno)
	}
}

// TestKernelProgramAtInterface: a packet that comes in by an interface with a program of tcx may be taken by it.
func TestKernelProgramAtInterface(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it loads a BPF program")
	}
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "tcx0"}, PeerName: "tcx1"}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	made, err := netlink.LinkByName("tcx0")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{}
	if err := m.programs("tcx0"); err != nil {
		t.Fatalf("without a program: %v", err)
	}
	attach(t, made.Attrs().Index, program(t, unix.BPF_PROG_TYPE_SCHED_CLS, 0, -1), unix.BPF_TCX_EGRESS)
	var unclear *unknown
	if err := m.programs("tcx0"); !errors.As(err, &unclear) || !strings.HasPrefix(unclear.why, "interface tcx0 has BPF program ") || !strings.HasSuffix(unclear.why, " (nothing) for what leaves (tcx), which may take packets") {
		t.Errorf("with a program of tcx: %v", err)
	}
}

// TestKernelProgramAtSockets: where a process in a cgroup with a program sends to, that may translate. The
// cgroup is the test's own, and no process is in it.
func TestKernelProgramAtSockets(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it loads a BPF program")
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	root := allProcesses(string(mounts))
	if root == "" {
		t.Skip("needs the cgroup of all processes: cgroup2 is not mounted here")
	}
	dir, err := os.MkdirTemp(root, "pointsman-test-")
	if err != nil {
		t.Skipf("needs a cgroup of its own: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	cgroup, err := os.Open(filepath.Clean(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer cgroup.Close()
	before := atSockets(dir, sdk.IPv4, sdk.UDP)
	if before != nil {
		t.Skipf("needs a node without such programs: %v", before)
	}
	attach(t, int(cgroup.Fd()), program(t, unix.BPF_PROG_TYPE_CGROUP_SOCK_ADDR, unix.BPF_CGROUP_UDP4_SENDMSG, 1), unix.BPF_CGROUP_UDP4_SENDMSG)
	var unclear *unknown
	if err := atSockets(dir, sdk.IPv4, sdk.UDP); !errors.As(err, &unclear) || !strings.Contains(unclear.why, " (nothing) at the cgroup "+dir+" may translate where processes of this node send to") {
		t.Errorf("with a program: %v", err)
	}
	for _, other := range []error{atSockets(dir, sdk.IPv4, sdk.TCP), atSockets(dir, sdk.IPv6, sdk.UDP), atSockets(dir+"-gone", sdk.IPv4, sdk.UDP)} {
		if other != nil {
			t.Errorf("of other packets: %v", other)
		}
	}
}

func TestAllProcesses(t *testing.T) {
	t.Parallel()
	const v1 = "40 30 0:37 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
	for mounts, want := range map[string]string{
		"": "",
		v1: "",
		v1 + "41 30 0:38 / /sys/fs/cgroup/unified rw shared:7 - cgroup2 cgroup2 rw\n": "/sys/fs/cgroup/unified",
		"41 30 0:38 /kubepods/pod1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n":          "",
	} {
		if got := allProcesses(mounts); got != want {
			t.Errorf("%q: %q, want %q", mounts, got, want)
		}
	}
	if err := translated(sdk.Packet{Origin: sdk.Elsewhere, To: netip.MustParseAddrPort("10.0.0.1:80")}); err != nil {
		t.Errorf("of another machine's packet: %v", err)
	}
}
