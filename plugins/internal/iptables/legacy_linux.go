// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
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

// dropPolicies returns the built-in chains of legacy's filter table that have the policy DROP. It needs no
// program.
func dropPolicies(family sdk.Family) (chains []string, err error) {
	const soGetEntries = 65               // IPT_SO_GET_ENTRIES and IP6T_SO_GET_ENTRIES
	const size, head, target = 32, 40, 32 // offsets in struct ipt_get_entries: the size of the entries, and these; the size of a target's header
	const drop = -1                       // -NF_DROP - 1
	info, err := tableInfo(family, "filter")
	if err != nil {
		return nil, err
	}
	buffer := make([]byte, head+int(info.bytes))
	copy(buffer[:size-1], "filter")
	binary.NativeEndian.PutUint32(buffer[size:], info.bytes)
	if err := askLegacy(family, soGetEntries, unsafe.Pointer(&buffer[0]), uint32(len(buffer))); err != nil { // EAGAIN: the table has changed
		return nil, fmt.Errorf("read the %s table filter: %w", family, err)
	}
	at := map[sdk.Family]int{sdk.IPv4: 88, sdk.IPv6: 140}[family] // where an entry has the offset of its target
	for i, chain := range builtIn {
		if info.hooks&(1<<i) == 0 {
			continue
		}
		policy := buffer[head+int(info.underflow[i]):]
		verdict := policy[int(binary.NativeEndian.Uint16(policy[at:]))+target:]
		if int32(binary.NativeEndian.Uint32(verdict)) == drop {
			chains = append(chains, chain)
		}
	}
	return chains, nil
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
