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
	return persist(func() error {
		size := size
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(question), uintptr(answer), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// persist asks until the answer is another one than EFAULT, a few times. What is asked with
// is memory of this process, and a question that the kernel takes for one with a bad address
// is answered when it is asked again: user-mode Linux 6.1 misses a page now and then (one
// question in 5,000) while the process starts another one.
func persist(ask func() error) (err error) {
	for range 5 {
		if err = ask(); !errors.Is(err, unix.EFAULT) {
			return err
		}
	}
	return err
}

// counts are what one of legacy's tables holds, by number. To take it from the kernel
// costs a fraction of having a program print the table, so it tells whether there is
// reason to.
type counts struct {
	Rules map[string]int // in each chain that is not built in
	Leads map[way]int    // from one of the kernel's own to one of those

	others int // rules in the kernel's own chains
}

// A way is one from chain to chain.
type way struct{ from, to string }

// LegacyDrops are the kernel's own chains in legacy's table filter that have the policy to drop, but for those that lead
// to chain but. A table that was not made is left so.
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

// countTable counts what one of legacy's tables holds.
func countTable(family sdk.Family, table string) (counts, error) {
	list, err := readTable(family, table)
	if err != nil {
		return counts{}, err
	}
	return list.counts(), nil
}

// readTable reads one of legacy's tables from the kernel. Should it grow meanwhile, the
// kernel says so, and it is read again.
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

// Where the kernel's struct ipt_get_entries, and ip6t_get_entries, has how many bytes the
// entries take, behind the table's name; and where it has the entries.
const (
	entriesSize = 32
	entriesHead = 40
)

// soGetEntries is IPT_SO_GET_ENTRIES, and IP6T_SO_GET_ENTRIES.
const soGetEntries = 65

// An entryList is one of legacy's tables as the kernel has it: entries one behind the
// other, chain by chain. One of the kernel's own chains begins where a hook says, and
// ends with its policy. A chain of users begins with an entry whose target is named
// ERROR and holds the chain's name, and ends with one that returns. The last entry of
// all is named ERROR, too.
type entryList struct {
	data    []byte
	offsets int            // where in an entry it says where its target is, and the next entry
	hooks   map[int]string // the kernel's own chains, by where each begins
	ends    map[int]bool   // where their policies are
}

func newEntryList(family sdk.Family, info getInfo, data []byte) entryList {
	l := entryList{data: data, offsets: 88, hooks: make(map[int]string), ends: make(map[int]bool)} // behind struct ipt_ip, and what is not used
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

// An entry is one of the list.
type entry struct {
	at, next int
	target   string // the name of its target; empty: it says where packets go on, as to has it
	rest     []byte // of the target, behind its header
}

// each calls tell for every entry.
func (l entryList) each(tell func(entry)) {
	const header = 32 // of a target: its size, its name, its revision
	for at := 0; len(l.data)-at >= l.offsets+4; {
		data := l.data[at:]
		target, next := int(binary.NativeEndian.Uint16(data[l.offsets:])), int(binary.NativeEndian.Uint16(data[l.offsets+2:]))
		if next < l.offsets+4 || next > len(data) || target+header+2 > next {
			return
		}
		tell(entry{at, at + next, terminated(data[target+2 : target+header]), data[target+header : next]})
		at += next
	}
}

// to is where the entry leads, if it leads anywhere: a verdict that is not negative is
// the place of an entry.
func (e entry) to() (place int, leads bool) {
	if e.target != "" || len(e.rest) < 4 {
		return 0, false
	}
	verdict := int32(binary.NativeEndian.Uint32(e.rest))
	return int(verdict), verdict >= 0
}

// drops reports whether the entry drops what comes to it.
func (e entry) drops() bool {
	const verdict = -1 // -NF_DROP - 1
	return e.target == "" && len(e.rest) >= 4 && int32(binary.NativeEndian.Uint32(e.rest)) == verdict
}

// counts counts what the list holds.
func (l entryList) counts() counts {
	t := counts{Rules: make(map[string]int), Leads: make(map[way]int)}
	begins := make(map[int]string)  // chains of users, by their first entry
	leads := make(map[string][]int) // from the kernel's own, to which entry
	var own, users string           // the present chain
	l.each(func(e entry) {
		if hook, begun := l.hooks[e.at]; begun {
			own, users = hook, ""
		}
		to, leadsOn := e.to()
		switch {
		case e.target == "ERROR" && e.next < len(l.data):
			own, users = "", terminated(e.rest)
			begins[e.next] = users
			t.Rules[users] = -1 // what ends the chain is no rule
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

// counted returns how many packets came to the rules of some chains of users, by the name that reasons has for the chain.
func (l entryList) counted(reasons map[string]string) map[string]uint64 {
	all := make(map[string]uint64)
	counters := (l.offsets + 15) &^ 7 // where in an entry struct xt_counters is, behind what it says of itself
	chain := ""
	l.each(func(e entry) {
		if l.hooks[e.at] != "" {
			chain = ""
		}
		if e.target == "ERROR" {
			chain = terminated(e.rest)
		}
		if reason, counts := reasons[chain]; counts {
			all[reason] += binary.NativeEndian.Uint64(l.data[e.at+counters:])
		}
	})
	return all
}

// terminated is the text before a zero.
func terminated(data []byte) string {
	text, _, _ := bytes.Cut(data, []byte{0})
	return string(text)
}
