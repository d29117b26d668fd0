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
	"github.com/pointsman/pointsman/sdk"
)

// A set is one of the kernel's, by its place in sets.
type set uint8

// The sets, in the order in which entries go in. They go out in the other.
const (
	sources       set = iota // ranges that may call a frontend
	restricted               // frontends that only some may call
	noneNear                 // frontends without an endpoint that a caller may be sent to
	noneNearOuter            // the same, for callers that are not on this node
	bound                    // addresses on our device
	loopBack                 // endpoints that may call themselves
	nearMarks                // frontends whose callers on this node have a virtual service of their own
	clusterIPs
	externalIPs
	externalIPsLocal
	loadBalancers
	loadBalancersLocal
	nodePortsTCP
	nodePortsTCPLocal
	nodePortsUDP
	nodePortsUDPLocal
	nodePortsSCTP
	nodePortsSCTPLocal
	healthPorts
	setCount
)

// registers are the sets whose entries say which frontends are ours, and of which Service.
var registers = []set{
	clusterIPs, externalIPs, externalIPsLocal, loadBalancers, loadBalancersLocal,
	nodePortsTCP, nodePortsTCPLocal, nodePortsUDP, nodePortsUDPLocal, nodePortsSCTP, nodePortsSCTPLocal,
}

// A form is the type of a set, which says what its entries are made of.
type form string

// The forms, as ipset names them.
const (
	formAddr       form = "hash:ip"
	formAddrPort   form = "hash:ip,port"
	formAddrPortIP form = "hash:ip,port,ip"
	formSources    form = "hash:ip,port,net"
	formPort       form = "bitmap:port"
)

// sets says what each is called in IPv4, and what it is made of.
var sets = [setCount]struct {
	name string
	form form
}{
	sources:            {"KUBE-LOAD-BALANCER-SOURCE-CIDR", formSources},
	restricted:         {"KUBE-LOAD-BALANCER-FW", formAddrPort},
	noneNear:           {"KUBE-NO-LOCAL", formAddrPort},
	noneNearOuter:      {"KUBE-NO-LOCAL-EXTERNAL", formAddrPort},
	bound:              {"KUBE-IPVS-IPS", formAddr},
	loopBack:           {"KUBE-LOOP-BACK", formAddrPortIP},
	nearMarks:          {"KUBE-NEAR", formAddrPort},
	clusterIPs:         {"KUBE-CLUSTER-IP", formAddrPort},
	externalIPs:        {"KUBE-EXTERNAL-IP", formAddrPort},
	externalIPsLocal:   {"KUBE-EXTERNAL-IP-LOCAL", formAddrPort},
	loadBalancers:      {"KUBE-LOAD-BALANCER", formAddrPort},
	loadBalancersLocal: {"KUBE-LOAD-BALANCER-LOCAL", formAddrPort},
	nodePortsTCP:       {"KUBE-NODE-PORT-TCP", formPort},
	nodePortsTCPLocal:  {"KUBE-NODE-PORT-LOCAL-TCP", formPort},
	nodePortsUDP:       {"KUBE-NODE-PORT-UDP", formPort},
	nodePortsUDPLocal:  {"KUBE-NODE-PORT-LOCAL-UDP", formPort},
	nodePortsSCTP:      {"KUBE-NODE-PORT-SCTP-HASH", formAddrPort},
	nodePortsSCTPLocal: {"KUBE-NODE-PORT-LOCAL-SCTP-HASH", formAddrPort},
	healthPorts:        {"KUBE-HEALTH-CHECK-NODE-PORT", formPort},
}

// longestSetName is what the kernel holds.
const longestSetName = 31

// in is the name that s has in a family.
func (s set) in(f sdk.Family) string {
	name := sets[s].name
	if f == sdk.IPv6 {
		name = "KUBE-6-" + strings.TrimPrefix(name, "KUBE-")
	}
	return name[:min(len(name), longestSetName)]
}

// setCalled is the way back from in.
func setCalled(name string) (set, sdk.Family, bool) {
	for s := range setCount {
		for _, f := range families {
			if s.in(f) == name {
				return s, f, true
			}
		}
	}
	return 0, 0, false
}

// nodePortSets are the sets of node ports of a protocol: of all, and of those under
// the Local policy.
func nodePortSets(p sdk.Protocol) (all, local set) {
	switch p {
	case sdk.UDP:
		return nodePortsUDP, nodePortsUDPLocal
	case sdk.SCTP:
		return nodePortsSCTP, nodePortsSCTPLocal
	}
	return nodePortsTCP, nodePortsTCPLocal
}

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

// readSets parses what "ipset save" prints. What is not called like one of ours is
// passed over.
func readSets(data []byte) (map[sdk.Family]setsOf, error) {
	all := make(map[sdk.Family]*setsOf)
	for _, f := range families {
		all[f] = &setsOf{shapes: make(map[set]shape), entries: make(map[entry]note)}
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			continue
		}
		s, f, ours := setCalled(fields[1])
		switch {
		case fields[0] == "create" && kubeProxySets[fields[1]] != 0:
			f := kubeProxySets[fields[1]]
			all[f].relics = append(all[f].relics, fields[1])
		case !ours:
		case fields[0] == "create" && s.is(f, fields):
			all[f].shapes[s] = right
		case fields[0] == "create":
			all[f].shapes[s] = strange
		case fields[0] == "add":
			e, err := parseEntry(s, f, fields[2])
			if err != nil {
				continue // it is in a set of another form
			}
			all[f].entries[e] = readNote(lines.Text())
		}
	}
	return map[sdk.Family]setsOf{sdk.IPv4: *all[sdk.IPv4], sdk.IPv6: *all[sdk.IPv6]}, lines.Err()
}

// kubeProxySets are those that we have no use for.
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
	return fmt.Sprintf("KUBE-IPVS-SPARE-%d-%d", f, s)
}

// replace are the lines that put a set of ours in place of another's at one moment.
func (s set) replace(f sdk.Family, fill map[entry]note) string {
	var b strings.Builder
	spare := s.spare(f)
	b.WriteString(s.create(f, spare) + "\n")
	for e, n := range fill {
		b.WriteString(strings.Replace(e.command(n), " "+s.in(f)+" ", " "+spare+" ", 1) + "\n")
	}
	fmt.Fprintf(&b, "swap %s %s\ndestroy %s\n", spare, s.in(f), spare)
	return b.String()
}
