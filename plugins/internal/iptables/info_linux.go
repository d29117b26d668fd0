// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// Size is how big the kernel says that one of legacy's tables is. A process that changes
// a table mostly changes its size.
type Size struct{ Rules, Bytes uint32 }

// getInfo is the kernel's struct ipt_getinfo, and ip6t_getinfo.
type getInfo struct {
	name      [32]byte
	hooks     uint32
	entries   [5]uint32
	underflow [5]uint32
	rules     uint32
	bytes     uint32
}

// soGetInfo is IPT_SO_GET_INFO, and IP6T_SO_GET_INFO.
const soGetInfo = 64

// TableSize asks the kernel how big legacy's table is, in the network namespace of
// the calling thread. It costs the same however big that is.
func TableSize(family sdk.Family, table string) (Size, error) {
	info, err := tableInfo(family, table)
	return Size{info.rules, info.bytes}, err
}

func tableInfo(family sdk.Family, table string) (info getInfo, err error) {
	copy(info.name[:len(info.name)-1], table)
	if err := askLegacy(family, soGetInfo, unsafe.Pointer(&info), uint32(unsafe.Sizeof(info))); err != nil {
		return info, fmt.Errorf("size of the %s table %s: %w", family, table, err)
	}
	return info, nil
}

// askLegacy asks one question of legacy iptables, which answers into the size bytes
// at answer.
func askLegacy(family sdk.Family, question int, answer unsafe.Pointer, size uint32) error {
	domain, level := unix.AF_INET, unix.IPPROTO_IP
	if family == sdk.IPv6 {
		domain, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(question), uintptr(answer), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
