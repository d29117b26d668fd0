// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// mostPrograms is how many programs at one place are named.
const mostPrograms = 8

// programsAt returns the ids of the BPF programs that are attached to something: a cgroup, by its
// descriptor, or an interface, by its index. None, where the kernel cannot be asked: it is too old, or
// this process may not (BPF_PROG_QUERY).
func programsAt(target, attachType, flags uint32) []uint32 {
	ids := new([mostPrograms]uint32)
	var held runtime.Pinner
	held.Pin(ids)
	defer held.Unpin()
	query := struct {
		target, attachType, flags, attached uint32
		ids                                 uint64
		count, _                            uint32
		attachFlags                         uint64
		linkIDs, linkFlags, revision        uint64
	}{target: target, attachType: attachType, flags: flags, ids: uint64(uintptr(unsafe.Pointer(ids))), count: mostPrograms}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query))
	if errno != 0 && errno != unix.ENOSPC { // there are more
		return nil
	}
	return ids[:min(query.count, mostPrograms)]
}

// called is a program as bpftool lists it: "BPF program 17 (from_pod)".
func called(id uint32) string {
	text := fmt.Sprintf("BPF program %d", id)
	byID := struct{ id, next, flags uint32 }{id: id}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_GET_FD_BY_ID, uintptr(unsafe.Pointer(&byID)), unsafe.Sizeof(byID))
	if errno != 0 {
		return text
	}
	defer unix.Close(int(fd))
	info := new(struct {
		_    [64]byte // of struct bpf_prog_info
		name [16]byte
	})
	var held runtime.Pinner
	held.Pin(info)
	defer held.Unpin()
	ask := struct {
		fd, size uint32
		info     uint64
	}{uint32(fd), uint32(unsafe.Sizeof(*info)), uint64(uintptr(unsafe.Pointer(info)))}
	if _, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&ask)), unsafe.Sizeof(ask)); errno != 0 {
		return text
	}
	if name := unix.ByteSliceToString(info.name[:]); name != "" {
		text += " (" + name + ")"
	}
	return text
}

// atInterface is why it cannot be told what becomes of packets at an interface: programs of tcx, which
// no list of traffic control's queues shows (since Linux 6.6).
func atInterface(name string, index int) error {
	for _, at := range []struct {
		kind uint32
		way  string
	}{{unix.BPF_TCX_INGRESS, "comes in"}, {unix.BPF_TCX_EGRESS, "leaves"}} {
		if ids := programsAt(uint32(index), at.kind, 0); len(ids) > 0 {
			return unknownf("interface %s has %s for what %s (tcx), which may take packets", name, called(ids[0]), at.way)
		}
	}
	return nil
}

// atSockets is why it cannot be told where a process of this node, or of a pod of it, sends: programs at
// a cgroup may translate that before there is a packet.
func atSockets(cgroup string, family sdk.Family, protocol sdk.Protocol) error {
	kind := map[sdk.Family]uint32{sdk.IPv4: unix.BPF_CGROUP_INET4_CONNECT, sdk.IPv6: unix.BPF_CGROUP_INET6_CONNECT}[family]
	kinds := []uint32{kind}
	if protocol == sdk.UDP {
		kinds = append(kinds, map[sdk.Family]uint32{sdk.IPv4: unix.BPF_CGROUP_UDP4_SENDMSG, sdk.IPv6: unix.BPF_CGROUP_UDP6_SENDMSG}[family])
	}
	fd, err := unix.Open(cgroup, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // nothing is known of it
	}
	defer unix.Close(fd)
	for _, kind := range kinds {
		if ids := programsAt(uint32(fd), kind, unix.BPF_F_QUERY_EFFECTIVE); len(ids) > 0 {
			return unknownf("%s at the cgroup %s may translate where processes of this node send to (bpftool cgroup tree)", called(ids[0]), cgroup)
		}
	}
	return nil
}

// allProcesses returns the cgroup that every process of this node is in, as far as this process sees
// that; empty: it sees none.
func allProcesses(mounts string) string {
	for line := range strings.SplitSeq(mounts, "\n") {
		before, after, _ := strings.Cut(line, " - ")
		words := strings.Fields(before)
		if kind, _, _ := strings.Cut(after, " "); kind == "cgroup2" && len(words) > 4 && words[3] == "/" {
			return words[4]
		}
	}
	return ""
}

// translated is why it cannot be told where what is sent here goes; nil: nothing translates it, or it
// is not sent here.
func translated(p sdk.Packet) error {
	if p.Origin == sdk.Elsewhere {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("look for the cgroup of all processes: %w", err)
	}
	if root := allProcesses(string(mounts)); root != "" {
		return atSockets(root, sdk.FamilyOf(p.To.Addr()), p.Protocol)
	}
	return nil
}

// translated is the same, asked of the kernel once.
func (m *machine) translated(p sdk.Packet) error {
	if p.Origin == sdk.Elsewhere {
		return nil
	}
	err, known := m.sends[p.Protocol]
	if !known {
		err = translated(p)
		m.sends[p.Protocol] = err
	}
	return err
}
