// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/sdk"
)

// An entry is one member of a set. The form of the set says which fields it has.
type entry struct {
	set      set
	family   sdk.Family
	addr     netip.Addr
	protocol sdk.Protocol
	port     uint16
	from     netip.Prefix // with formSources: the range; with formAddrPortIP: the address
}

// A note is what the kernel keeps beside an entry.
type note struct {
	comment string // the Service's name, for people and for a process that starts anew
	mark    uint32 // what the packet is marked with
}

// String is the entry as ipset writes it: "10.0.0.1,tcp:80".
func (e entry) String() string {
	switch sets[e.set].form {
	case formPort:
		return strconv.Itoa(int(e.port))
	case formAddr:
		return e.addr.String()
	case formAddrPort:
		return fmt.Sprintf("%s,%s:%d", e.addr, e.protocol, e.port)
	case formAddrPortIP:
		return fmt.Sprintf("%s,%s:%d,%s", e.addr, e.protocol, e.port, e.from.Addr())
	}
	from := e.from.String()
	if e.from.IsSingleIP() {
		from = e.from.Addr().String()
	}
	return fmt.Sprintf("%s,%s:%d,%s", e.addr, e.protocol, e.port, from)
}

// command is the line with which ipset's restore adds the entry, or changes its note.
func (e entry) command(n note) string {
	line := "add -exist " + e.set.in(e.family) + " " + e.String()
	if n.comment != "" {
		line += ` comment "` + n.comment + `"`
	}
	if n.mark != 0 {
		line += fmt.Sprintf(" skbmark %#x", n.mark)
	}
	return line
}

// parseEntry reads what String wrote.
func parseEntry(s set, f sdk.Family, text string) (entry, error) {
	e := entry{set: s, family: f}
	parts := strings.Split(text, ",")
	var err error
	switch sets[s].form {
	case formPort:
		return e, e.setPort(text)
	case formAddr:
		e.addr, err = netip.ParseAddr(text)
		return e, err
	}
	if len(parts) < 2 {
		return e, fmt.Errorf("%q is no entry of %s", text, s.in(f))
	}
	if e.addr, err = netip.ParseAddr(parts[0]); err != nil {
		return e, err
	}
	protocol, port, _ := strings.Cut(parts[1], ":")
	e.protocol = iptables.ProtocolCalled(protocol)
	if err := e.setPort(port); err != nil {
		return e, err
	}
	if len(parts) == 3 {
		return e, e.setFrom(parts[2])
	}
	return e, nil
}

func (e *entry) setPort(text string) error {
	port, err := strconv.ParseUint(text, 10, 16)
	e.port = uint16(port)
	return err
}

func (e *entry) setFrom(text string) (err error) {
	if strings.Contains(text, "/") {
		e.from, err = netip.ParsePrefix(text)
		return err
	}
	addr, err := netip.ParseAddr(text)
	e.from = single(addr)
	return err
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func compareEntries(a, b entry) int {
	return cmp.Or(
		cmp.Compare(a.set, b.set),
		cmp.Compare(a.family, b.family),
		a.addr.Compare(b.addr),
		cmp.Compare(a.protocol, b.protocol),
		cmp.Compare(a.port, b.port),
		sdk.ComparePrefix(a.from, b.from),
	)
}

// mostEntries is how many entries a hash may have. The kernel takes memory for those
// that there are, not for these.
const mostEntries = 1 << 20

// create is the line that makes s under name.
func (s set) create(f sdk.Family, name string) string {
	line := "create " + name + " " + string(sets[s].form)
	if sets[s].form == formPort {
		return line + " range 0-65535 comment"
	}
	inet := "inet"
	if f == sdk.IPv6 {
		inet = "inet6"
	}
	line += fmt.Sprintf(" family %s hashsize 1024 maxelem %d comment", inet, mostEntries)
	if s == nearMarks {
		line += " skbinfo"
	}
	return line
}

// is reports whether what was created as fields says can do what we ask of s.
func (s set) is(f sdk.Family, fields []string) bool {
	for _, word := range strings.Fields(s.create(f, "-"))[2:] {
		if word != "1024" && !slices.Contains(fields, word) {
			return false
		}
	}
	return true
}

// readSets parses what "ipset save" prints. What is called like none of ours, or of kube-proxy's,
// is passed over.
func readSets(data []byte) (map[sdk.Family]setsOf, error) {
	all := make(map[sdk.Family]*setsOf)
	for _, f := range families {
		all[f] = &setsOf{shapes: make(map[set]shape), entries: make(map[entry]note), proxied: make(map[entry]bool)}
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			continue
		}
		n, known := setsCalled[fields[1]]
		of := all[n.family]
		switch create := fields[0] == "create"; {
		case create && kubeProxySets[fields[1]] != 0:
			of := all[kubeProxySets[fields[1]]]
			of.relics = append(of.relics, fields[1])
		case !known:
		case create && n.proxied:
			of.relics = append(of.relics, fields[1])
		case create && n.set.is(n.family, fields):
			of.shapes[n.set] = right
		case create:
			of.shapes[n.set] = strange
		case fields[0] == "add":
			e, err := parseEntry(n.set, n.family, fields[2])
			switch {
			case err != nil: // it is in a set of another form
			case n.proxied:
				of.proxied[e] = true
			default:
				of.entries[e] = readNote(lines.Text())
			}
		}
	}
	for _, f := range families {
		slices.Sort(all[f].relics)
	}
	return map[sdk.Family]setsOf{sdk.IPv4: *all[sdk.IPv4], sdk.IPv6: *all[sdk.IPv6]}, lines.Err()
}

// kubeProxySets are those of which we have none of the kind.
var kubeProxySets = map[string]sdk.Family{"KUBE-LOAD-BALANCER-SOURCE-IP": sdk.IPv4, "KUBE-6-LOAD-BALANCER-SOURCE-IP": sdk.IPv6}

// readNote is what stands beside an entry, in the line that would add it.
func readNote(line string) note {
	var n note
	if _, rest, ok := strings.Cut(line, ` comment "`); ok {
		n.comment, line, _ = strings.Cut(rest, `"`)
	}
	if _, rest, ok := strings.Cut(line, " skbmark "); ok {
		word, _, _ := strings.Cut(rest, " ")
		word, _, _ = strings.Cut(word, "/")
		mark, _ := strconv.ParseUint(word, 0, 32)
		n.mark = uint32(mark)
	}
	return n
}

// spare is the name under which a set is filled before it takes another's place.
func (s set) spare(f sdk.Family) string {
	return fmt.Sprintf("PM-SPARE-%d-%d", f, s)
}

// restoreLines are the lines that make sets, and add or remove entries. One of ours takes the place of another's when it has
// all of these entries.
func restoreLines(f sdk.Family, made, entries []change) string {
	var b, swaps strings.Builder
	replaced := make(map[set]bool)
	for _, c := range made {
		s := c.Key.entry.set
		name := s.in(f)
		if replaced[s] = c.Op == reconcile.Replace; replaced[s] {
			name = s.spare(f)
			fmt.Fprintf(&swaps, "swap %s %s\ndestroy %[1]s\n", name, s.in(f))
		}
		b.WriteString(s.create(f, name) + "\n")
	}
	for _, c := range entries {
		e := c.Key.entry
		line := e.command(c.New.note)
		if c.Op == reconcile.Remove {
			line = fmt.Sprintf("del -exist %s %s", e.set.in(f), e)
		}
		if replaced[e.set] {
			line = strings.Replace(line, e.set.in(f), e.set.spare(f), 1)
		}
		b.WriteString(line + "\n")
	}
	return b.String() + swaps.String()
}

// destroy are the lines that remove sets.
func destroy(sets []string) string { return "destroy " + strings.Join(sets, "\ndestroy ") + "\n" }
