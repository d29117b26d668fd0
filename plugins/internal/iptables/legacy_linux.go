// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
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

// An entry is an entry of a legacy table: a rule, a policy, or the head of a user-defined chain.
type entry struct {
	chain   string // the user-defined chain of a rule; empty: a built-in one
	policy  string // for a policy: the built-in chain
	drops   bool   // the verdict is DROP
	packets uint64 // number of packets that it has matched
}

// eachEntry reads a legacy table from the kernel, which must exist, and calls tell for each entry. That is much
// faster than a program, and takes no lock.
func eachEntry(family sdk.Family, table string, tell func(entry)) error {
	info, err := tableInfo(family, table)
	if err != nil {
		return err
	}
	const size, head = 32, 40 // offsets in struct ipt_get_entries: the size of the entries after the table's name, and the entries
	buffer := make([]byte, head+int(info.bytes))
	copy(buffer[:size-1], table)
	binary.NativeEndian.PutUint32(buffer[size:], info.bytes)
	if err := askLegacy(family, soGetEntries, unsafe.Pointer(&buffer[0]), uint32(len(buffer))); err != nil { // EAGAIN: the table has changed
		return fmt.Errorf("read the %s table %s: %w", family, table, err)
	}
	offsets := 88 // in an entry: the offsets of its target and of the next entry, after struct ipt_ip and nfcache
	if family == sdk.IPv6 {
		offsets = 140
	}
	const target, name = 32, 2 // size of a target's header, and the name in it
	counters := (offsets + 15) &^ 7
	var e entry
	for at := 0; len(buffer)-head-at > counters+8; {
		data := buffer[head+at:]
		to, next := int(binary.NativeEndian.Uint16(data[offsets:])), int(binary.NativeEndian.Uint16(data[offsets+2:]))
		if next > len(data) || to+target+4 > next {
			return fmt.Errorf("read the %s table %s: an entry is not understood", family, table)
		}
		rest := data[to+target : next]
		kind := cString(data[to+name : to+target]) // empty: a verdict or a jump
		e.policy, e.packets = "", binary.NativeEndian.Uint64(data[counters:])
		e.drops = kind == "" && int32(binary.NativeEndian.Uint32(rest)) == -1 // -NF_DROP - 1
		for i, chain := range builtIn {
			switch exists := info.hooks&(1<<i) != 0; {
			case exists && int(info.underflow[i]) == at:
				e.policy = chain
			case exists && int(info.entries[i]) == at:
				e.chain = ""
			}
		}
		if kind == "ERROR" { // the head of a user-defined chain, or the end of the table
			e.chain = cString(rest)
		} else {
			tell(e)
		}
		at += next
	}
	return nil
}

// soGetEntries is IPT_SO_GET_ENTRIES and IP6T_SO_GET_ENTRIES.
const soGetEntries = 65

// cString returns the text before the first zero byte.
func cString(data []byte) string {
	text, _, _ := bytes.Cut(data, []byte{0})
	return string(text)
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
