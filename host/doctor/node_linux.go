// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

// Examine runs all checks.
func (n Node) Examine() []Finding {
	return slices.Concat(n.stateDir(), n.forwarding(), n.routes(), n.conntrack(), n.reversePath(), n.listeners())
}

// read returns the content of a file below Proc.
func (n Node) read(path string) (string, error) {
	data, err := os.ReadFile(filepath.Join(n.Proc, path))
	return strings.TrimSpace(string(data)), err
}

// A frontend is a frontend of a Service, such as "cluster-ip 10.96.0.10:53" or "node-port *:30080 local".
type frontend struct {
	service    string // NAMESPACE/NAME
	port       admin.Port
	kind, addr string
}

// frontends returns the frontends of all Services.
func (n Node) frontends() (all []frontend) {
	for _, s := range n.Services {
		for _, p := range s.Ports {
			for _, f := range p.Frontends {
				words := strings.Fields(f)
				all = append(all, frontend{s.Namespace + "/" + s.Name, p, words[0], words[1]})
			}
		}
	}
	return all
}

// number returns the number in a file below Proc.
func (n Node) number(path string) (int, error) {
	text, err := n.read(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// forwarding checks the kernel parameters without which the kernel forwards no packets from
// pods to endpoints on other nodes, and none from outside to pods. The userspace mode does not
// need them, because its relay opens connections of its own.
func (n Node) forwarding() (all []Finding) {
	const check = "forwarding"
	addrs, _ := n.read("net/if_inet6")
	for _, key := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		name := strings.ReplaceAll(key, "/", ".")
		switch on, err := n.number("sys/" + key); {
		case strings.Contains(key, "ipv6") && !strings.Contains(addrs, " 00 "): // no address of global scope
		case err != nil:
			all = append(all, New(check, Unknown, "", "%v", err)...)
		case on == 0 && n.Mode == "userspace":
			all = append(all, New(check, OK, "", "%s is 0, and this mode does not need it", name)...)
		case on == 0:
			all = append(all, New(check, Fail, "sysctl -w "+name+"=1, and keep it in /etc/sysctl.d", "%s is 0: pods and clients outside this node do not reach endpoints", name)...)
		default:
			all = append(all, New(check, OK, "", "%s is 1", name)...)
		}
	}
	return all
}

// routes asks the kernel for the route to a ClusterIP of each family, with connect(2) of a UDP
// socket, which sends nothing. Without a route a process of this node gets ENETUNREACH before
// any rule of a dataplane sees its packet.
func (n Node) routes() (all []Finding) {
	const check = "route to ClusterIPs"
	targets := make(map[string]string) // a ClusterIP and port by the network to dial
	for _, f := range n.frontends() {
		if f.kind == "cluster-ip" {
			targets["udp"+f.port.Network[len(f.port.Network)-1:]] = f.addr
		}
	}
	for _, network := range slices.Sorted(maps.Keys(targets)) {
		conn, err := net.Dial(network, targets[network])
		if err != nil {
			all = append(all, New(check, Fail, "add a default route, or a route for the Service range: ip route add RANGE dev INTERFACE, with the interface that leads to the other nodes",
				"processes of this node cannot connect to Services: %v", err)...)
			continue
		}
		conn.Close()
		all = append(all, New(check, OK, "", "the kernel has a route to %s", targets[network])...)
	}
	return all
}

// conntrack checks the connection tracking table before it is full. When it is full, the kernel
// drops new connections.
func (n Node) conntrack() []Finding {
	const check, text = "connection tracking", "%d of %d connections; the kernel drops new ones when the table is full"
	const try = "raise linux.conntrack.maxPerCore, or net.netfilter.nf_conntrack_max"
	count, err := n.number("sys/net/netfilter/nf_conntrack_count")
	limit, limitErr := n.number("sys/net/netfilter/nf_conntrack_max")
	switch err = errors.Join(err, limitErr); {
	case errors.Is(err, fs.ErrNotExist):
		return New(check, OK, "", "not in use yet")
	case err != nil:
		return New(check, Unknown, "", "%v", err)
	case limit > 0 && 100*count >= 95*limit:
		return New(check, Fail, try, text, count, limit)
	case limit > 0 && 100*count >= 75*limit:
		return New(check, Warn, try, text, count, limit)
	}
	return New(check, OK, "", "%d of %d connections", count, limit)
}

// reversePath finds interfaces on which the kernel drops packets whose replies would leave by
// another interface: the maximum of the rp_filter of the interface and of "all" is 1
// (ip-sysctl.rst).
func (n Node) reversePath() []Finding {
	const check, dir = "reverse path filter", "sys/net/ipv4/conf/"
	all, err := n.number(dir + "all/rp_filter")
	if err != nil {
		return New(check, Unknown, "", "%v", err)
	}
	interfaces, _ := os.ReadDir(filepath.Join(n.Proc, dir))
	var strict []string
	for _, i := range interfaces {
		own, err := n.number(dir + i.Name() + "/rp_filter")
		if err == nil && max(own, all) == 1 && !slices.Contains([]string{"all", "default", "lo"}, i.Name()) {
			strict = append(strict, i.Name())
		}
	}
	if len(strict) == 0 {
		return New(check, OK, "", "no interface is strict")
	}
	return New(check, Warn, "sysctl -w net.ipv4.conf.all.rp_filter=2, if clients come in by one interface and are answered by another",
		"strict on %s: the kernel drops packets there whose answers would leave by another interface", phrase.List(strict))
}

// listeners finds node ports on which a process listens. A Service's own endpoint on the host
// network may listen there, and so may the relay of the userspace mode; there a Service fails
// if another process was first.
func (n Node) listeners() (all []Finding) {
	const check = "node ports"
	services := make(map[string]string) // by protocol and port: "tcp 30080"
	for _, f := range n.frontends() {
		port := strings.TrimPrefix(f.addr, "*:")
		own := func(endpoint string) bool { return strings.HasSuffix(endpoint, ":"+port) }
		if f.kind == "node-port" && n.Mode != "userspace" && !slices.ContainsFunc(slices.Concat(f.port.Cluster, f.port.Local), own) {
			services[strings.TrimRight(f.port.Network, "46")+" "+port] = f.service
		}
	}
	for _, table := range []struct{ protocol, name, state string }{{"tcp", "tcp", "0A"}, {"tcp", "tcp6", "0A"}, {"udp", "udp", "07"}, {"udp", "udp6", "07"}} {
		text, _ := n.read("net/" + table.name)
		for line := range strings.Lines(text) {
			words := strings.Fields(line) // sl local_address rem_address st
			if len(words) < 4 || words[3] != table.state {
				continue // not listening
			}
			_, port, _ := strings.Cut(words[1], ":")
			number, _ := strconv.ParseUint(port, 16, 16)
			if port := fmt.Sprint(table.protocol, " ", number); services[port] != "" {
				all = append(all, New(check, Warn, fmt.Sprintf("ss -lntup 'sport = :%d'; give the process or the Service another port", number),
					"a process listens on %s, a node port of Service %s: packets go to the Service, not to the process", port, services[port])...)
			}
		}
	}
	if len(all) == 0 {
		return New(check, OK, "", "no process listens on one")
	}
	return all
}

// stateDir checks whether the host can write to its state directory, and whether everybody can.
// Any user may own it, because the packages run the host as a user of its own.
func (n Node) stateDir() []Finding {
	const check = "stateDir"
	var left unix.Statfs_t
	info, err := os.Stat(n.StateDir)
	switch err = errors.Join(err, unix.Statfs(n.StateDir, &left)); {
	case errors.Is(err, fs.ErrNotExist):
		return New(check, OK, "", "%s does not exist yet; the host creates it", n.StateDir)
	case err != nil:
		return New(check, Unknown, "", "%v", err)
	case info.Mode()&0o002 != 0:
		return New(check, Fail, "chmod o-w "+n.StateDir, "every user may write to %s", n.StateDir)
	case left.Flags&unix.ST_RDONLY != 0 || left.Bavail*uint64(left.Bsize) < 1<<20 || left.Files > 0 && left.Ffree == 0:
		return New(check, Fail, "see mount, df and df -i; make room", "%s cannot be written to: its file system is full or read-only", n.StateDir)
	}
	return New(check, OK, "", "%s has %d MiB left", n.StateDir, left.Bavail*uint64(left.Bsize)>>20)
}
