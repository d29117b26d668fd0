// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A section is what one Service comes to in HAProxy: a "listen" section of its configuration.
// Its JSON is how a process of the plugin leaves it to the next one.
type section struct {
	Name      sdk.Name
	Frontends []sdk.Frontend
	Affinity  time.Duration
	Endpoints []netip.AddrPort // in order
}

// want returns the section of a Service. A *sdk.Refusal says that HAProxy cannot serve it.
func want(svc sdk.Service) (section, error) {
	for _, needed := range svc.Needs() {
		if !slices.Contains(description.Features, needed) {
			return section{}, &sdk.Refusal{Field: "service", Why: fmt.Sprintf("it needs %s, which this dataplane does not have", needed)}
		}
	}
	s := section{Name: svc.Name, Frontends: svc.Frontends, Affinity: svc.Affinity}
	for _, ep := range svc.Cluster {
		if ep.Addr.Addr().Zone() != "" {
			return section{}, &sdk.Refusal{Field: "cluster", Why: fmt.Sprintf("endpoint %s has a zone, which HAProxy does not know", ep)}
		}
		s.Endpoints = append(s.Endpoints, ep.Addr)
	}
	slices.SortFunc(s.Endpoints, netip.AddrPort.Compare)
	return s, nil
}

// sameButEndpoints reports whether HAProxy gets from s to t while it runs.
func (s section) sameButEndpoints(t section) bool {
	return s.Affinity == t.Affinity && slices.EqualFunc(s.Frontends, t.Frontends, sdk.Frontend.Equal)
}

// sectionName is what HAProxy calls a Service: "ns1.web.http.tcp4". A byte that HAProxy's names
// lack, or that parts a name, is written as _ and two digits.
func sectionName(n sdk.Name) string {
	var b strings.Builder
	for _, word := range []string{n.Namespace, n.Service, n.Port} {
		for _, c := range []byte(word) {
			if c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "_%02x", c)
			}
		}
		b.WriteByte('.')
	}
	return b.String() + n.Network()
}

// serverName is what HAProxy calls an endpoint: "10.180.0.1:8080", "fd00::1:8080".
func serverName(at netip.AddrPort) string {
	return strings.NewReplacer("[", "", "]", "").Replace(at.String())
}

// A setting is what HAProxy's configuration has beside Services.
type setting struct {
	socket      string // of the runtime API
	threads     int    // zero: as many as HAProxy takes
	connections int
	clients     map[sdk.Name]string // files of the clients that keep an endpoint, by Service
}

// tableSize is how many clients of one Service keep their endpoint, at most.
const tableSize = 65536

// render returns HAProxy's configuration.
func render(c setting, sections map[sdk.Name]section) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("global")
	line("  stats socket %s level admin mode 600 expose-fd listeners", c.socket)
	line("  maxconn %d", c.connections)
	if c.threads > 0 {
		line("  nbthread %d", c.threads)
	}
	line("defaults")
	line("  mode tcp")
	line("  balance random(1)")
	line("  timeout connect 3s")
	line("  timeout client 24d") // what is established stays: a dead peer is found by keep-alive
	line("  timeout server 24d")
	line("  option clitcpka")
	line("  option srvtcpka")
	line("  retries 3")
	line("  option redispatch 1")
	for _, n := range slices.SortedFunc(maps.Keys(sections), sdk.Name.Compare) {
		sections[n].render(line, c.clients[n])
	}
	return b.String()
}

// render writes one section. clients is the file of those that keep an endpoint; empty: none.
func (s section) render(line func(string, ...any), clients string) {
	id := sectionName(s.Name)
	line("listen %s", id)
	for i, f := range s.Frontends {
		line("  bind %s", f.Addr)
		s.admit(line, i, f)
	}
	// Without an endpoint, a reset as without a listener. Once it is told to end, HAProxy counts no
	// servers any more, and still has connections that it accepted before.
	line("  tcp-request connection reject if { nbsrv eq 0 } !{ stopping }")
	if s.Affinity > 0 {
		line("  stick-table type %s size %d expire %dms", tableType(s.Name.Family), tableSize, min(s.Affinity, longest).Milliseconds())
		line("  stick on src")
	}
	if s.Affinity > 0 && clients != "" {
		line("  use-server %%[src,map_ip(%[1]s)] if { src,map_ip(%[1]s) -m found } !{ src,in_table(%[2]s) }", clients, id)
	}
	for _, at := range s.Endpoints {
		line("  server %s %s", serverName(at), at)
	}
}

// longest is the longest time that HAProxy can count.
const longest = 24 * 24 * time.Hour

// perLine is how many ranges one line has: HAProxy takes lines of 2048 bytes and 64 words.
const perLine = 32

// admit turns callers away that are in none of a frontend's ranges.
func (s section) admit(line func(string, ...any), i int, f sdk.Frontend) {
	if len(f.Sources) == 0 {
		return
	}
	for some := range slices.Chunk(f.Sources, perLine) {
		words := make([]string, len(some))
		for i, p := range some {
			words[i] = p.String()
		}
		line("  acl admitted-%d src %s", i, strings.Join(words, " "))
	}
	line("  tcp-request connection reject if { dst %s } { dst_port %d } !admitted-%d", f.Addr.Addr(), f.Addr.Port(), i)
}

func tableType(f sdk.Family) string {
	if f == sdk.IPv6 {
		return "ipv6"
	}
	return "ip"
}

// settle leaves a frontend to one section: to that which was wanted last. A Service that failed,
// or is kept, is served as before, and may have an address that another one has now.
func settle(sections map[sdk.Name]section, stale map[sdk.Name]bool) {
	if len(stale) == 0 {
		return
	}
	taken := make(map[netip.AddrPort]bool)
	for n, s := range sections {
		for _, f := range s.Frontends {
			taken[f.Addr] = taken[f.Addr] || !stale[n]
		}
	}
	for n := range stale {
		s, ok := sections[n]
		if !ok {
			continue
		}
		s.Frontends = slices.DeleteFunc(slices.Clone(s.Frontends), func(f sdk.Frontend) bool { return taken[f.Addr] })
		sections[n] = s
	}
}

// limits returns how many connections HAProxy may carry, by the descriptors that it may have: two for
// each, and one for each listener.
func limits(descriptors uint64, sections map[sdk.Name]section) int {
	const most, spare, least = 200_000, 200, 100
	listeners := 0
	for _, s := range sections {
		listeners += len(s.Frontends)
	}
	return max((int(min(descriptors, most+uint64(listeners)))-listeners-spare)/2, least)
}
