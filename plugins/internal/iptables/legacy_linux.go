// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// getInfo is the kernel's struct ipt_getinfo and ip6t_getinfo.
type getInfo struct {
	name      [32]byte
	hooks     uint32
	entries   [5]uint32
	underflow [5]uint32
	rules     uint32
	bytes     uint32
}

// soGetInfo is IPT_SO_GET_INFO and IP6T_SO_GET_INFO.
const soGetInfo = 64

// TableSize returns the size of a legacy table, in the network namespace of the calling thread. It takes the
// same time for tables of any size, and creates a table that does not exist.
func TableSize(family sdk.Family, table string) (Size, error) {
	var info getInfo
	copy(info.name[:len(info.name)-1], table)
	if err := askLegacy(family, soGetInfo, unsafe.Pointer(&info), uint32(unsafe.Sizeof(info))); err != nil {
		return Size{}, fmt.Errorf("size of the %s table %s: %w", family, table, err)
	}
	return Size{info.rules, info.bytes}, nil
}

// askLegacy sends one query to legacy iptables. The kernel writes its answer to the size bytes at answer.
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
	return retryFault(func() error {
		size := size
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(question), uintptr(answer), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// retryFault repeats a query a few times while the result is EFAULT. All addresses in a query are valid, but
// user-mode Linux 6.1 returns EFAULT for one query in 5,000 while the process starts another one.
func retryFault(ask func() error) (err error) {
	for range 5 {
		if err = ask(); !errors.Is(err, unix.EFAULT) {
			return err
		}
	}
	return err
}

// asksLegacy asks whether legacy iptables has revision 0 of a match.
func (t Tool) asksLegacy(name string) error {
	revision := struct {
		name     [29]byte
		revision byte
	}{}
	copy(revision.name[:28], name)
	question := 66 // IPT_SO_GET_REVISION_MATCH
	if t.Family == sdk.IPv6 {
		question = 68
	}
	return askLegacy(t.Family, question, unsafe.Pointer(&revision), uint32(unsafe.Sizeof(revision)))
}
