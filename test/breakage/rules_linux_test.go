// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A dump is all that a namespace's kernel holds that a dataplane may write: the rules by
// table and chain, sets, virtual servers, addresses, and kernel parameters.
type dump map[string][]string

// dump reads it.
func (n *node) dump() dump {
	n.Helper()
	d := make(dump)
	for _, family := range []string{"iptables", "ip6tables"} {
		out, err := n.run(family + "-" + n.backend + "-save")
		if err != nil {
			n.Errorf("%s: %v: %s", family, err, out)
		}
		d.rules(family, out)
	}
	if out, err := n.run("ipset", "save"); err == nil {
		d.sets(out)
	}
	for _, family := range []string{"ip", "ip6"} {
		if out, err := n.run("nft", "-j", "list table "+family+" pointsman"); err == nil {
			if err := d.elements("nft "+family+" ", out); err != nil {
				n.Error(err)
			}
		}
	}
	if n.backend == "nft" {
		out, _ := n.run("nft", "list", "table", "ip", "mine")
		d["nft mine"] = strings.Split(out, "\n")
	}
	if out, err := n.run("ipvsadm", "-Sn"); err == nil {
		// One with weight 0 takes nothing new: an endpoint that left, while it has connections.
		d["virtual servers"] = slices.DeleteFunc(sorted(anyMark.ReplaceAllString(out, "${1}ANY")), func(line string) bool { return strings.HasSuffix(line, " -w 0") })
	}
	for _, device := range []string{"kube-ipvs0", "lo"} {
		if out, err := n.run("ip", "-o", "addr", "show", "dev", device); err == nil {
			d["addresses "+device] = sorted(regexp.MustCompile(`^\d+: |\n\d+: |\s+valid_lft.*`).ReplaceAllString(out, "\n"))
		}
	}
	_ = n.here.Do(func() error { d.parameters(); return nil })
	return d
}

func sorted(text string) []string {
	return slices.Sorted(slices.Values(slices.DeleteFunc(strings.Split(text, "\n"), func(s string) bool { return s == "" })))
}

var (
	counters = regexp.MustCompile(` \[\d+:\d+\]`)
	// The ports that a relay listens on are any that were free.
	anyPort = regexp.MustCompile(`(--to-ports |--to-destination \S+:|--ctorigdstport |--dport )(3[2-9]\d{3}|[4-6]\d{4})\b`)
	// Services get marks in the order in which they come.
	anyMark = regexp.MustCompile(`( -f |skbmark )\S+`)
)

// rules takes in what iptables-save says: the rules of each chain in their order.
func (d dump) rules(family, text string) {
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(counters.ReplaceAllString(line, ""))
		switch {
		case strings.HasPrefix(line, "*"):
			table = family + " " + line[1:] + " "
		case strings.HasPrefix(line, ":"):
			chain, policy, _ := strings.Cut(line[1:], " ")
			d[table+chain] = append(d[table+chain], policy)
		case strings.HasPrefix(line, "-A "):
			chain, rule, _ := strings.Cut(line[3:], " ")
			d[table+chain] = append(d[table+chain], anyPort.ReplaceAllString(rule, "${1}ANY"))
		}
	}
	for chain, rules := range d { // a table that someone has looked at is there, and empty
		if strings.HasPrefix(chain, family) && len(rules) == 1 && rules[0] == "ACCEPT" {
			delete(d, chain)
		}
	}
}

// sets takes in what ipset says: how it hashes is no difference.
func (d dump) sets(text string) {
	hashes := regexp.MustCompile(` (hashsize|initval|bucketsize) \S+`)
	for line := range strings.Lines(text) {
		words := strings.Fields(anyMark.ReplaceAllString(hashes.ReplaceAllString(line, ""), "${1}ANY"))
		if len(words) > 1 {
			d["set "+words[1]] = append(d["set "+words[1]], strings.Join(words, " "))
		}
	}
	for name, set := range d {
		if strings.HasPrefix(name, "set ") {
			slices.Sort(set)
		}
	}
}

// parameters takes in those of the kernel that dataplanes change.
func (d dump) parameters() {
	for _, pattern := range []string{"net/ipv4/conf/all/*", "net/ipv4/conf/default/*", "net/ipv4/conf/lo/*", "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_*", "net/ipv4/vs/*"} {
		paths, _ := filepath.Glob("/proc/sys/" + pattern)
		for _, path := range paths {
			value, err := os.ReadFile(path)
			if err == nil && !strings.HasSuffix(path, "_count") {
				d["parameter "+path] = []string{strings.TrimSpace(string(value))}
			}
		}
	}
}

func (d dump) String() string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(d)) {
		if !strings.HasPrefix(name, "parameter ") {
			fmt.Fprintf(&text, "%s\n  %s\n", name, strings.Join(d[name], "\n  "))
		}
	}
	return text.String()
}

// differs is how another one is not the same, a chain to a paragraph.
func (d dump) differs(other dump) string {
	names := make(map[string]bool)
	for name := range d {
		names[name] = true
	}
	for name := range other {
		names[name] = true
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was, is := d[name], other[name]; !slices.Equal(was, is) {
			fmt.Fprintf(&text, "%s should be\n  %s\nand is\n  %s\n", name, strings.Join(was, "\n  "), strings.Join(is, "\n  "))
		}
	}
	return text.String()
}

// foreign gives the node what others have on one, which no host may touch.
func (n *node) foreign() {
	n.Helper()
	tool := "iptables-" + n.backend
	for _, rule := range []string{
		"-t nat -A PREROUTING -d 203.0.113.9 -j DNAT --to-destination 10.180.0.1",
		"-t nat -N MY-NAT", "-t nat -A MY-NAT -d 203.0.113.8 -j RETURN", "-t nat -A POSTROUTING -j MY-NAT",
		"-N MINE", "-A MINE -s 198.51.100.0/24 -m comment --comment not-yours -j DROP", "-A INPUT -j MINE", "-A FORWARD -j MINE", "-A OUTPUT -j MINE",
		"-N KUBE-LIKE-MINE", "-A KUBE-LIKE-MINE -j RETURN",
	} {
		n.must(tool, append([]string{"-w"}, strings.Fields(rule)...)...)
	}
	n.must("ip6"+tool[2:], "-w", "-A", "INPUT", "-s", "2001:db8:dead::/48", "-j", "DROP")
	n.must("ip", "addr", "add", "203.0.113.77/32", "dev", "lo")
	if _, err := n.run("ipset", "create", "mine", "hash:ip"); err == nil {
		n.must("ipset", "add", "mine", "203.0.113.5")
	}
	if n.backend == "nft" {
		n.must("nft", "add table ip mine; add chain ip mine own; add rule ip mine own ip daddr 203.0.113.6 drop")
	}
	if n.guest() {
		n.must("ipvsadm", "-A", "-t", "203.0.113.77:99", "-s", "rr")
	}
}
