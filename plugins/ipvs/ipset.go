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

// An entry identifies a member of a set. The form of the set determines which fields are set.
type entry struct {
	set      set
	family   sdk.Family
	addr     netip.Addr
	protocol sdk.Protocol
	port     uint16
	from     netip.Prefix // with formSources: the range; with formAddrPortIP: the address
}

// A note is what the kernel stores with a member.
type note struct {
	comment string // the Service's name, for operators and for adoption
	mark    uint32 // the mark that matching packets get
}

// String returns the entry in ipset's syntax: "10.0.0.1,tcp:80".
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

// command returns the line of ipset restore that adds the entry or changes its note.
func (e entry) command(n note) string {
	line := "add -exist " + e.set.name(e.family) + " " + e.String()
	if n.comment != "" {
		line += ` comment "` + n.comment + `"`
	}
	if n.mark != 0 {
		line += fmt.Sprintf(" skbmark %#x", n.mark)
	}
	return line
}

// parseEntry is the inverse of String.
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
		return e, fmt.Errorf("%q is not a member of %s", text, s.name(f))
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
	e.from = hostPrefix(addr)
	return err
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func compareEntries(a, b entry) int {
	return cmp.Or(
		cmp.Compare(a.set, b.set),
		cmp.Compare(a.family, b.family),
		a.addr.Compare(b.addr),
		cmp.Compare(a.protocol, b.protocol),
		cmp.Compare(a.port, b.port),
		a.from.Compare(b.from),
	)
}

// mostEntries is the maximum number of members of a hash set. The kernel allocates memory only for existing
// members.
const mostEntries = 1 << 20

// create returns the line that creates s.
func (s set) create(f sdk.Family) string {
	line := "create " + s.name(f) + " " + string(sets[s].form)
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

// readSets parses the output of "ipset save". It ignores sets with other names than ours and kube-proxy's.
func readSets(data []byte) (map[sdk.Family]setsOf, error) {
	all := make(map[sdk.Family]*setsOf)
	for _, f := range families {
		all[f] = &setsOf{exist: make(map[set]bool), entries: make(map[entry]note), kubeProxyEntries: make(map[entry]bool)}
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			continue
		}
		n, known := setsByName[fields[1]]
		of := all[n.family]
		switch create := fields[0] == "create"; {
		case create && kubeProxySets[fields[1]] != 0:
			of := all[kubeProxySets[fields[1]]]
			of.kubeProxySets = append(of.kubeProxySets, fields[1])
		case !known:
		case create && n.isKubeProxy:
			of.kubeProxySets = append(of.kubeProxySets, fields[1])
		case create:
			of.exist[n.set] = true
		case fields[0] == "add":
			e, err := parseEntry(n.set, n.family, fields[2])
			switch {
			case err != nil: // the set has another form
			case n.isKubeProxy:
				of.kubeProxyEntries[e] = true
			default:
				of.entries[e] = readNote(lines.Text())
			}
		}
	}
	for _, f := range families {
		slices.Sort(all[f].kubeProxySets)
	}
	return map[sdk.Family]setsOf{sdk.IPv4: *all[sdk.IPv4], sdk.IPv6: *all[sdk.IPv6]}, lines.Err()
}

// kubeProxySets are the sets of kube-proxy that have no counterpart of ours.
var kubeProxySets = map[string]sdk.Family{"KUBE-LOAD-BALANCER-SOURCE-IP": sdk.IPv4, "KUBE-6-LOAD-BALANCER-SOURCE-IP": sdk.IPv6}

// readNote returns the comment and mark of a member from its "add" line.
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

// restoreLines returns the lines that create sets and add or remove members.
func restoreLines(f sdk.Family, made, entries []change) string {
	var b strings.Builder
	for _, c := range made {
		b.WriteString(c.Key.entry.set.create(f) + "\n")
	}
	for _, c := range entries {
		e := c.Key.entry
		line := e.command(c.New.note)
		if c.Op == reconcile.Remove {
			line = fmt.Sprintf("del -exist %s %s", e.set.name(f), e)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// destroyLines returns the lines that remove sets.
func destroyLines(sets []string) string { return "destroy " + strings.Join(sets, "\ndestroy ") + "\n" }
