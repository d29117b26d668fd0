// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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
// same time for tables of any size.
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

// counts are the numbers of rules in a legacy table. Reading them from the kernel is much faster than printing
// the table with a program, so they tell whether that is needed.
type counts struct {
	Rules map[string]int // rules in each user-defined chain
	Leads map[way]int    // number of rules that lead from a built-in chain to a user-defined one

	others int // rules in the built-in chains
}

// A way is a pair of chains.
type way struct{ from, to string }

// LegacyDrops returns the built-in chains of legacy's filter table that have the policy DROP and do not lead to
// chain but. It does not create the table.
func LegacyDrops(family sdk.Family, but string) (chains []string, err error) {
	if !slices.Contains(legacyTables(family), "filter") {
		return nil, nil
	}
	list, err := readTable(family, "filter")
	if err != nil {
		return nil, err
	}
	var own string
	leads := list.counts().Leads
	list.each(func(e entry) {
		if chain, begun := list.hooks[e.at]; begun {
			own = chain
		}
		if list.ends[e.at] && e.drops() && leads[way{own, but}] == 0 {
			chains = append(chains, own)
		}
	})
	return chains, nil
}

// countTable counts the rules of a legacy table.
func countTable(family sdk.Family, table string) (counts, error) {
	list, err := readTable(family, table)
	if err != nil {
		return counts{}, err
	}
	return list.counts(), nil
}

// readTable reads a legacy table from the kernel. It starts again if the table grows meanwhile, which the
// kernel reports.
func readTable(family sdk.Family, table string) (entryList, error) {
	for range 10 {
		info, err := tableInfo(family, table)
		if err != nil {
			return entryList{}, err
		}
		buffer := make([]byte, entriesHead+int(info.bytes))
		copy(buffer[:entriesSize-1], table)
		binary.NativeEndian.PutUint32(buffer[entriesSize:], info.bytes)
		err = askLegacy(family, soGetEntries, unsafe.Pointer(&buffer[0]), uint32(len(buffer)))
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return entryList{}, fmt.Errorf("read the %s table %s: %w", family, table, err)
		}
		return newEntryList(family, info, buffer[entriesHead:]), nil
	}
	return entryList{}, fmt.Errorf("read the %s table %s: other programs keep changing it", family, table)
}

// Offsets in the kernel's struct ipt_get_entries and ip6t_get_entries: the size of the entries, after the
// table's name, and the entries.
const (
	entriesSize = 32
	entriesHead = 40
)

// soGetEntries is IPT_SO_GET_ENTRIES and IP6T_SO_GET_ENTRIES.
const soGetEntries = 65

// An entryList is a legacy table in the kernel's format: the entries of all chains, one after the other. A
// built-in chain begins at the offset of a hook and ends with its policy. A user-defined chain begins with an
// entry whose target is named ERROR and holds the chain's name, and ends with an entry that returns. The last
// entry of the table is named ERROR, too.
type entryList struct {
	data    []byte
	offsets int            // offset, within an entry, of the offsets of its target and of the next entry
	hooks   map[int]string // built-in chains by their offset
	ends    map[int]bool   // offsets of their policies
}

func newEntryList(family sdk.Family, info getInfo, data []byte) entryList {
	l := entryList{data: data, offsets: 88, hooks: make(map[int]string), ends: make(map[int]bool)} // after struct ipt_ip and nfcache
	if family == sdk.IPv6 {
		l.offsets = 140
	}
	for i, chain := range builtIn {
		if info.hooks&(1<<i) != 0 {
			l.hooks[int(info.entries[i])] = chain
			l.ends[int(info.underflow[i])] = true
		}
	}
	return l
}

// An entry is an entry of the list.
type entry struct {
	at, next int
	target   string // the name of its target; empty: a verdict or a jump
	rest     []byte // the target without its header
}

// each calls tell for every entry.
func (l entryList) each(tell func(entry)) {
	const header = 32 // size of a target's header: size, name, revision
	for at := 0; len(l.data)-at >= l.offsets+4; {
		data := l.data[at:]
		target, next := int(binary.NativeEndian.Uint16(data[l.offsets:])), int(binary.NativeEndian.Uint16(data[l.offsets+2:]))
		if next < l.offsets+4 || next > len(data) || target+header+2 > next {
			return
		}
		tell(entry{at, at + next, cString(data[target+2 : target+header]), data[target+header : next]})
		at += next
	}
}

// to returns the offset of the entry to which e leads: that is a verdict that is not negative.
func (e entry) to() (place int, leads bool) {
	if e.target != "" || len(e.rest) < 4 {
		return 0, false
	}
	verdict := int32(binary.NativeEndian.Uint32(e.rest))
	return int(verdict), verdict >= 0
}

// drops reports whether the verdict is DROP.
func (e entry) drops() bool {
	const verdict = -1 // -NF_DROP - 1
	return e.target == "" && len(e.rest) >= 4 && int32(binary.NativeEndian.Uint32(e.rest)) == verdict
}

// counts counts the rules of the list.
func (l entryList) counts() counts {
	t := counts{Rules: make(map[string]int), Leads: make(map[way]int)}
	begins := make(map[int]string)  // user-defined chains by the offset of their first entry
	leads := make(map[string][]int) // offsets to which built-in chains lead
	var own, users string           // the present chain
	l.each(func(e entry) {
		if hook, begun := l.hooks[e.at]; begun {
			own, users = hook, ""
		}
		to, leadsOn := e.to()
		switch {
		case e.target == "ERROR" && e.next < len(l.data):
			own, users = "", cString(e.rest)
			begins[e.next] = users
			t.Rules[users] = -1 // do not count the entry that ends the chain
		case e.target == "ERROR":
		case own == "":
			t.Rules[users]++
		case !l.ends[e.at]:
			t.others++
			if leadsOn {
				leads[own] = append(leads[own], to)
			}
		}
	})
	for from, places := range leads {
		for _, to := range places {
			t.Leads[way{from, begins[to]}]++
		}
	}
	return t
}

// counted returns how many packets reached the rules of some user-defined chains, by the value that reasons has
// for the chain.
func (l entryList) counted(reasons map[string]string) map[string]uint64 {
	all := make(map[string]uint64)
	counters := (l.offsets + 15) &^ 7 // offset of struct xt_counters in an entry
	chain := ""
	l.each(func(e entry) {
		if l.hooks[e.at] != "" {
			chain = ""
		}
		if e.target == "ERROR" {
			chain = cString(e.rest)
		}
		if reason, counts := reasons[chain]; counts {
			all[reason] += binary.NativeEndian.Uint64(l.data[e.at+counters:])
		}
	})
	return all
}

// cString returns the text before the first zero byte.
func cString(data []byte) string {
	text, _, _ := bytes.Cut(data, []byte{0})
	return string(text)
}
