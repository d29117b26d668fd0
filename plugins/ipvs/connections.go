// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// ExportAffinity tells which clients the kernel keeps at an endpoint: it lists them among its
// connections.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	each := func(line string) error {
		at, entry, ok := affinityIn(line)
		if !ok {
			return nil
		}
		if entry.Name, ok = p.ownerOf(at); !ok {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return tell(entry)
	}
	return p.Do(ctx, func(map[sdk.Name]sdk.Service) error { return p.machine.listed(each) })
}

// listed calls tell for each line of the kernel's list of connections (affinityIn says what it
// looks like), until it returns an error.
func (m machine) listed(tell func(line string) error) error {
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

// ImportAffinity cannot have the kernel keep a client: it learns that from packets alone.
func (p *plugin) ImportAffinity(_ context.Context, entries []sdk.AffinityEntry) error {
	return &sdk.Refusal{Field: "affinity", Why: fmt.Sprintf("ipvs learns from packets alone which client keeps which endpoint: %d clients may be sent to another once", len(entries))}
}

// ownerOf is the Service that has a virtual service, if it has affinity.
func (p *plugin) ownerOf(at serviceKey) (sdk.Name, bool) {
	for _, f := range p.session.families {
		if c, ok := f.objects.owner(at); ok && c.value.scheduling.affinity > 0 {
			return c.name, true
		}
	}
	return sdk.Name{}, false
}

// affinityIn reads a line of the kernel's list, if it is about a client that is kept at an
// endpoint. It names no port of that client's:
//
//	Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires
//	TCP 0AB40009 0000 AC1E0029 0050 0AB40101 1F90 NONE           10780
func affinityIn(line string) (serviceKey, sdk.AffinityEntry, bool) {
	words := strings.Fields(line)
	if len(words) < 9 || words[2] != "0000" {
		return serviceKey{}, sdk.AffinityEntry{}, false
	}
	client, ok1 := hexAddr(words[1], words[2])
	at, ok2 := hexAddr(words[3], words[4])
	dest, ok3 := hexAddr(words[5], words[6])
	left, err := strconv.Atoi(words[8])
	protocol := protocolOf(words[0])
	if protocol == 0 || !ok1 || !ok2 || !ok3 || err != nil {
		return serviceKey{}, sdk.AffinityEntry{}, false
	}
	return serviceKey{family: sdk.FamilyOf(at.Addr()), protocol: protocol, addr: at},
		sdk.AffinityEntry{Client: client.Addr(), Endpoint: dest, Left: time.Duration(left) * time.Second}, true
}

// hexAddr reads an address and a port as the kernel writes them there: IPv6 with its
// colons.
func hexAddr(addr, port string) (netip.AddrPort, bool) {
	raw, err := hex.DecodeString(strings.ReplaceAll(addr, ":", ""))
	if err != nil {
		return netip.AddrPort{}, false
	}
	ip, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(ip, uint16(n)), ok && err == nil
}

// Connections that began while net.ipv4.vs.conntrack was 0 are unknown to the kernel's
// connection tracking, for as long as they last: it does not help them that it is 1
// since. IPVS serves them on. A dataplane of rules would take the next packet of each
// for the first of a new one, send it elsewhere, and so end it. So the host is told of
// them before it changes the mode.

// A flow is a connection, by its two ends.
type flow struct {
	protocol sdk.Protocol
	from, to netip.AddrPort
}

// seeUntracked counts the established connections of ours that connection tracking
// does not know, and has Report tell of them.
func (s *session) seeUntracked() error {
	flows, err := s.established()
	if err != nil {
		return err
	}
	for _, f := range s.families {
		of := f.objects.node.family
		if !slices.ContainsFunc(slices.Collect(maps.Keys(flows)), func(f flow) bool { return sdk.FamilyOf(f.to.Addr()) == of }) {
			continue // it may know very many, of which none matters
		}
		if err := s.plugin.machine.tracked(of, func(f flow) { delete(flows, f); s.env.Step() }); err != nil {
			return fmt.Errorf("look for untracked %s connections: %w", of, err)
		}
	}
	s.tellUntracked(len(flows))
	return nil
}

func (s *session) tellUntracked(n int) {
	if n > 0 && s.untracked == 0 {
		s.env.Log.Warn("connections began while net.ipv4.vs.conntrack was 0; until they have ended, a change of mode would end them", "connections", n)
	}
	s.untracked = n
	why := ""
	if n > 0 {
		why = fmt.Sprintf("%d established connections began while net.ipv4.vs.conntrack was 0, and would end; wait until they are over (ipvsadm -Lnc lists them)", n)
	}
	s.plugin.swapImpact.Store(&why)
}

// established are the connections to virtual services of ours that a change of mode
// must not end. UDP has none: what is sent next is served by what serves then.
func (s *session) established() (map[flow]bool, error) {
	all := make(map[flow]bool)
	return all, s.plugin.machine.listed(func(line string) error {
		if f, ok := establishedIn(line); ok && s.serves(f) {
			all[f] = true
		}
		return nil
	})
}

func (s *session) serves(f flow) bool {
	at := serviceKey{family: sdk.FamilyOf(f.to.Addr()), protocol: f.protocol, addr: f.to}
	return slices.ContainsFunc(s.families, func(f *family) bool { _, ours := f.objects.have.services[at]; return ours })
}

// establishedIn reads a line of the kernel's list (affinityIn says what it looks like), if
// it is about a connection that is established.
func establishedIn(line string) (flow, bool) {
	words := strings.Fields(line)
	if len(words) < 9 || words[7] != "ESTABLISHED" {
		return flow{}, false
	}
	protocol := protocolOf(words[0])
	from, ok1 := hexAddr(words[1], words[2])
	to, ok2 := hexAddr(words[3], words[4])
	return flow{protocol, from, to}, protocol != 0 && ok1 && ok2
}

// keepTracking looks after the parameter: another program may set it to 0. It counts
// again while there is anything to count.
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
		if err := s.env.Take(s.plugin.machine.settings(f.objects.node.node, s.options)); err != nil {
			return err
		}
	}
	return s.seeUntracked()
}
