// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/host/admin"
)

// A Node is what is looked at.
type Node struct {
	Proc       string            // where proc is: /proc
	Interfaces []net.Interface   // those there are
	Kinds      map[string]string // of interfaces, by name: "bridge", "veth"
	NodePorts  []uint16          // of Services, as far as they are known
}

// Examine makes all checks.
func (n Node) Examine() []admin.Finding {
	return slices.Concat(n.forwarding(), n.connections(), n.reversePath(), n.bridges(), n.packetSizes(), n.ephemeral(), n.backends(), n.proxies(), clock())
}

// read returns the text of a file below proc.
func (n Node) read(path string) (string, error) {
	data, err := os.ReadFile(filepath.Join(n.Proc, path))
	return strings.TrimSpace(string(data)), err
}

// unknown is the finding for what could not be read.
func unknown(check string, err error) []admin.Finding {
	return []admin.Finding{{Check: check, Result: admin.Unknown, Why: err.Error()}}
}

func ok(check, format string, args ...any) []admin.Finding {
	return []admin.Finding{{Check: check, Result: admin.OK, Why: fmt.Sprintf(format, args...)}}
}

// forwarding: what a node does not forward comes to no pod of another node, and to none of its own
// from outside (net.ipv4.ip_forward, net.ipv6.conf.all.forwarding).
func (n Node) forwarding() (found []admin.Finding) {
	const check = "forwarding"
	for _, f := range []struct{ family, path, key string }{
		{"IPv4", "sys/net/ipv4/ip_forward", "net.ipv4.ip_forward"},
		{"IPv6", "sys/net/ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding"},
	} {
		if f.family == "IPv6" && !n.hasIPv6() {
			continue
		}
		switch on, err := n.read(f.path); {
		case err != nil:
			found = append(found, unknown(check, err)...)
		case on == "0":
			found = append(found, admin.Finding{Check: check, Result: admin.Warn, Why: f.family + " is not forwarded, so that only a relay reaches endpoints",
				Try: "sysctl -w " + f.key + "=1, and keep it in /etc/sysctl.d"})
		default:
			found = append(found, ok(check, "%s is forwarded", f.family)...)
		}
	}
	return found
}

// hasIPv6 reports whether an interface has a global IPv6 address (scope 00 in if_inet6).
func (n Node) hasIPv6() bool {
	text, _ := n.read("net/if_inet6")
	return slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
		words := strings.Fields(line)
		return len(words) > 3 && words[3] == "00"
	})
}

// The table of connections is looked at before it is full: from then on the kernel drops what begins.
const (
	warnFilled = 75 // per cent
	failFilled = 95
)

// connections looks at the table of tracked connections, and at what was dropped because it was full
// (Documentation/networking/nf_conntrack-sysctl.rst, /proc/net/stat/nf_conntrack).
func (n Node) connections() []admin.Finding {
	const check = "connection tracking"
	count, err := n.number("sys/net/netfilter/nf_conntrack_count")
	if errors.Is(err, fs.ErrNotExist) {
		return ok(check, "not in use yet")
	}
	limit, limitErr := n.number("sys/net/netfilter/nf_conntrack_max")
	if err = errors.Join(err, limitErr); err != nil {
		return unknown(check, err)
	}
	if limit == 0 {
		return ok(check, "%d connections, and no limit", count)
	}
	f := admin.Finding{Check: check, Result: admin.OK, Why: fmt.Sprintf("%d of %d connections", count, limit)}
	filled := 100 * count / limit
	switch {
	case filled >= failFilled:
		f.Result = admin.Fail
	case filled >= warnFilled:
		f.Result = admin.Warn
	}
	if f.Result != admin.OK {
		f.Why += fmt.Sprintf(", %d %% of what the kernel keeps: new ones are dropped when it is full", filled)
		f.Try = "raise linux.conntrack.maxPerCore, or net.netfilter.nf_conntrack_max"
	}
	found := []admin.Finding{f}
	found = append(found, n.lost()...)
	return found
}

// mostRaces is how many connections may not have been entered since the node began before that is worth
// a look: two packets of one UDP flow that begin at once are a race that the kernel resolves, now and then.
const mostRaces = 100

// lost says what the table did not take.
func (n Node) lost() (found []admin.Finding) {
	const check = "connection tracking"
	if failed, err := n.counted("insert_failed"); err == nil && failed > mostRaces {
		found = append(found, admin.Finding{Check: check, Result: admin.Warn,
			Why: fmt.Sprintf("%d connections were not entered since the node began, and their first packet was dropped: no port was left to masquerade them by, or packets of one flow raced", failed),
			Try: "conntrack -S; widen net.ipv4.ip_local_port_range, or look at what sends many datagrams from one port, such as DNS"})
	}
	if lost, err := n.counted("drop"); err == nil && lost > 0 {
		found = append(found, admin.Finding{Check: check, Result: admin.Warn, Why: fmt.Sprintf("%d packets were dropped since the node began, because the table was full", lost),
			Try: "raise linux.conntrack.maxPerCore, or net.netfilter.nf_conntrack_max"})
	}
	return found
}

func (n Node) number(path string) (int, error) {
	text, err := n.read(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// counted sums a column of what is counted of tracked connections, over all processors. The numbers are
// hexadecimal.
func (n Node) counted(column string) (sum uint64, err error) {
	text, err := n.read("net/stat/nf_conntrack")
	if err != nil {
		return 0, err
	}
	lines := strings.Split(text, "\n")
	at := slices.Index(strings.Fields(lines[0]), column)
	if at < 0 {
		return 0, fmt.Errorf("net/stat/nf_conntrack has no column %s", column)
	}
	for _, line := range lines[1:] {
		if words := strings.Fields(line); len(words) > at {
			value, err := strconv.ParseUint(words[at], 16, 64)
			if err != nil {
				return 0, err
			}
			sum += value
		}
	}
	return sum, nil
}

// reversePath finds interfaces on which the kernel drops what it would not answer by the same one
// (rp_filter 1; the greater of the interface's and of all's counts, ip-sysctl.rst).
func (n Node) reversePath() []admin.Finding {
	const check = "reverse path filter"
	all, err := n.number("sys/net/ipv4/conf/all/rp_filter")
	if err != nil {
		return unknown(check, err)
	}
	var strict []string
	for _, i := range n.Interfaces {
		own, err := n.number("sys/net/ipv4/conf/" + i.Name + "/rp_filter")
		if err == nil && max(own, all) == 1 && i.Flags&net.FlagLoopback == 0 {
			strict = append(strict, i.Name)
		}
	}
	if len(strict) == 0 {
		return ok(check, "no interface is strict")
	}
	return []admin.Finding{{Check: check, Result: admin.Warn,
		Why: "strict on " + some(strict) + ": packets are dropped there whose answers would leave by another interface",
		Try: "sysctl -w net.ipv4.conf.all.rp_filter=2, if callers come in by one interface and are reached by another"}}
}

// some names the first few.
func some(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
