// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/ipvslist"
	"github.com/pointsman/pointsman/sdk"
)

// ExportAffinity reports the clients that the kernel keeps at an endpoint. It reads them from the list of IPVS
// connections, which has an entry for each client with affinity.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	var sticky map[serviceKey]sdk.Name
	each := func(line string) error {
		at, entry, ok := parseAffinity(line)
		if !ok {
			return nil
		}
		if entry.Name, ok = sticky[at]; !ok {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return tell(entry)
	}
	return p.Do(ctx, func(map[sdk.Name]sdk.Service) error {
		sticky = p.session.affinityServers()
		return p.machine.eachConnection(each)
	})
}

// eachConnection calls tell for each line of the kernel's list of IPVS connections until tell returns an error.
// See connection for the format.
func (m machine) eachConnection(tell func(line string) error) error {
	list, err := os.Open(m.connections)
	if err != nil {
		return fmt.Errorf("read the connections: %w", err)
	}
	defer list.Close()
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		if err := tell(lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// ImportAffinity always fails: IPVS has no way to add a client and learns clients only from packets.
func (p *plugin) ImportAffinity(_ context.Context, entries []sdk.AffinityEntry) error {
	return &sdk.Refusal{Field: "affinity", Why: fmt.Sprintf("ipvs learns only from packets which client keeps which endpoint: %d clients may be sent to another endpoint once", len(entries))}
}

// affinityServers returns the virtual servers with affinity, and their Services.
func (s *session) affinityServers() map[serviceKey]sdk.Name {
	all := make(map[serviceKey]sdk.Name)
	for _, f := range s.families {
		for name, p := range f.Desired() {
			for _, v := range p.servers {
				if v.affinity > 0 && !v.covered {
					all[v.at] = name
				}
			}
		}
	}
	return all
}

// A connection is a line of the kernel's list:
//
//	Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires
//	TCP 0AB40009 0000 AC1E0029 0050 0AB40101 1F90 NONE           10780
type connection struct {
	flow
	dest    netip.AddrPort
	state   string
	expires int // seconds
}

func parseConnection(line string) (c connection, ok bool) {
	words := strings.Fields(line)
	if len(words) < 9 {
		return c, false
	}
	var errs [4]error
	for i, at := range []*netip.AddrPort{&c.from, &c.to, &c.dest} {
		*at, errs[i] = ipvslist.Addr(words[1+2*i], words[2+2*i])
	}
	c.protocol, c.state = ipvslist.Protocol(words[0]), words[7]
	c.expires, errs[3] = strconv.Atoi(words[8])
	return c, c.protocol != 0 && errors.Join(errs[:]...) == nil
}

// server returns the virtual server of a connection.
func (f flow) server() serviceKey {
	return serviceKey{family: sdk.FamilyOf(f.to.Addr()), protocol: f.protocol, addr: f.to}
}

// parseAffinity parses a line of the kernel's list, and returns ok if the line keeps a client at an endpoint.
// Such a line has client port 0.
func parseAffinity(line string) (serviceKey, sdk.AffinityEntry, bool) {
	c, ok := parseConnection(line)
	if !ok || c.from.Port() != 0 {
		return serviceKey{}, sdk.AffinityEntry{}, false
	}
	return c.server(), sdk.AffinityEntry{Client: c.from.Addr(), Endpoint: c.dest, Left: time.Duration(c.expires) * time.Second}, true
}

// Connections that began while net.ipv4.vs.conntrack was 0 are unknown to conntrack as long as they last, even
// after the parameter is set to 1. IPVS continues to serve them. A dataplane that uses conntrack would treat
// the next packet of each one as the start of a new connection, send it to another endpoint, and so break it.
// The host is therefore told about them before it swaps the mode.

// A flow identifies a connection by its two ends.
type flow struct {
	protocol sdk.Protocol
	from, to netip.AddrPort
}

// countUntracked counts the established connections of ours that conntrack does not know, for Report.
func (s *session) countUntracked() error {
	flows, err := s.establishedFlows()
	if err != nil {
		return err
	}
	for _, f := range s.families {
		of := f.node.family
		if !slices.ContainsFunc(slices.Collect(maps.Keys(flows)), func(f flow) bool { return sdk.FamilyOf(f.to.Addr()) == of }) {
			continue // conntrack may have very many entries, and none matters
		}
		if err := s.plugin.machine.eachTracked(of, func(f flow) { delete(flows, f); s.env.Step() }); err != nil {
			return fmt.Errorf("look for untracked %s connections: %w", of, err)
		}
	}
	n := len(flows)
	if n > 0 && s.untracked == 0 {
		s.env.Log.Warn("connections began while net.ipv4.vs.conntrack was 0; a swap would end them", "connections", n)
	}
	s.untracked = n
	why := ""
	if n > 0 {
		why = fmt.Sprintf("%d established connections began while net.ipv4.vs.conntrack was 0, and would end; wait until they are over (ipvsadm -Lnc lists them)", n)
	}
	s.plugin.swapImpact.Store(&why)
	return nil
}

// establishedFlows returns the connections to our virtual servers that a swap must not end. UDP has none, because
// the next packet of a flow can be served by another endpoint.
func (s *session) establishedFlows() (map[flow]bool, error) {
	all := make(map[flow]bool)
	var ours map[serviceKey]bool
	return all, s.plugin.machine.eachConnection(func(line string) error {
		c, ok := parseConnection(line)
		if !ok || c.state != "ESTABLISHED" {
			return nil
		}
		if ours == nil {
			ours = s.servers()
		}
		if ours[c.server()] {
			all[c.flow] = true
		}
		return nil
	})
}

// servers returns the virtual servers of both families.
func (s *session) servers() map[serviceKey]bool {
	all := make(map[serviceKey]bool)
	for _, f := range s.families {
		for v := range f.servers() {
			all[v.at] = true
		}
		for at := range f.unowned {
			all[at] = true
		}
	}
	return all
}

// keepTracking sets net.ipv4.vs.conntrack to 1 again if another program has cleared it. It counts untracked
// connections as long as there are any.
func (s *session) keepTracking(f *family) error {
	if f != s.families[0] {
		return nil
	}
	const name = "net/ipv4/vs/conntrack"
	value, err := os.ReadFile(s.plugin.machine.parameters + name)
	if err != nil {
		return err
	}
	set := strings.TrimSpace(string(value)) == "1"
	if set && s.untracked == 0 {
		return nil
	}
	if !set {
		s.env.Log.Warn("another program set net.ipv4.vs.conntrack to 0; it is set again")
		if err := s.env.Take(s.plugin.machine.settings(f.node.node, s.options)); err != nil {
			return err
		}
	}
	return s.countUntracked()
}
