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

// CountTable reads one of legacy's tables from the kernel. Should it grow meanwhile, the
// kernel says so, and it is read again.
func CountTable(family sdk.Family, table string) (Counts, error) {
	for range 10 {
		info, err := tableInfo(family, table)
		if err != nil {
			return Counts{}, err
		}
		buffer := make([]byte, entriesHead+int(info.bytes))
		copy(buffer[:entriesSize-1], table)
		binary.NativeEndian.PutUint32(buffer[entriesSize:], info.bytes)
		err = askLegacy(family, soGetEntries, unsafe.Pointer(&buffer[0]), uint32(len(buffer)))
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return Counts{}, fmt.Errorf("read the %s table %s: %w", family, table, err)
		}
		return newEntryList(family, info, buffer[entriesHead:]).counts(), nil
	}
	return Counts{}, fmt.Errorf("read the %s table %s: somebody changes it all the time", family, table)
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

// counts counts what the list holds.
func (l entryList) counts() Counts {
	t := Counts{Rules: make(map[string]int), Leads: make(map[Lead]int)}
	begins := make(map[int]string) // chains of users, by their first entry
	type lead struct {
		from string
		to   int
	}
	var leads []lead
	var own, users string // the present chain
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
				leads = append(leads, lead{own, to})
			}
		}
	})
	for _, lead := range leads {
		t.Leads[Lead{lead.from, begins[lead.to]}]++
	}
	return t
}

// terminated is the text before a zero.
func terminated(data []byte) string {
	text, _, _ := bytes.Cut(data, []byte{0})
	return string(text)
}
