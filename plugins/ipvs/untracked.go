// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// Connections that began while net.ipv4.vs.conntrack was 0 are unknown to the kernel's
// connection tracking, for as long as they last: it does not help them that it is 1
// since. IPVS serves them on. A dataplane of rules would take the next packet of each
// for the first of a new one, send it elsewhere, and so end it. So whoever means to
// change the mode is told of them.

// A flow is a connection, by who called whom.
type flow struct {
	protocol sdk.Protocol
	from, to netip.AddrPort
}

// seeUntracked counts the established connections of ours that connection tracking
// does not know, and has Report tell of them.
func (h *host) seeUntracked() error {
	flows, err := h.established()
	if err != nil {
		return err
	}
	for _, s := range h.sides {
		family := s.book.ground.family
		if !slices.ContainsFunc(flowsOf(flows), func(f flow) bool { return sdk.FamilyOf(f.to.Addr()) == family }) {
			continue // it may know very many, of which none matters
		}
		if err := h.plugin.edges.tracked(family, func(f flow) { delete(flows, f); h.env.Step() }); err != nil {
			return fmt.Errorf("look for untracked %s connections: %w", family, err)
		}
	}
	h.tellUntracked(len(flows))
	return nil
}

func flowsOf(all map[flow]bool) []flow { return slices.Collect(maps.Keys(all)) }

func (h *host) tellUntracked(n int) {
	if n > 0 && h.untracked == 0 {
		h.env.Log.Warn("connections began while net.ipv4.vs.conntrack was 0; until they have ended, a change of mode would end them", "connections", n)
	}
	h.untracked = n
	why := ""
	if n > 0 {
		why = fmt.Sprintf("%d established connections began while net.ipv4.vs.conntrack was 0, and would end; wait until they are over (ipvsadm -Lnc lists them)", n)
	}
	h.plugin.swapImpact.Store(&why)
}

// established are the connections to virtual servers of ours that a change of mode
// must not end. UDP has none: what is sent next is served by whoever serves then.
func (h *host) established() (map[flow]bool, error) {
	list, err := os.Open(h.plugin.edges.connections)
	if err != nil {
		return nil, fmt.Errorf("read the connections: %w", err)
	}
	defer list.Close()
	all := make(map[flow]bool)
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		if f, ok := establishedIn(lines.Text()); ok && h.serves(f) {
			all[f] = true
		}
	}
	return all, lines.Err()
}

func (h *host) serves(f flow) bool {
	at := server{family: sdk.FamilyOf(f.to.Addr()), protocol: f.protocol, addr: f.to}
	return slices.ContainsFunc(h.sides, func(s *side) bool { _, ours := s.book.have.servers[at]; return ours })
}

// establishedIn reads a line of the kernel's list (kept says what it looks like), if
// it is about a connection that is established.
func establishedIn(line string) (flow, bool) {
	words := strings.Fields(line)
	if len(words) < 9 || words[7] != "ESTABLISHED" {
		return flow{}, false
	}
	protocol, ok := protocolOf(words[0])
	from, ok1 := hexAddr(words[1], words[2])
	to, ok2 := hexAddr(words[3], words[4])
	return flow{protocol, from, to}, ok && ok1 && ok2
}

// keepTracking looks after the parameter: somebody else may set it to 0. It counts
// again while there is anything to count.
func (h *host) keepTracking(s *side) error {
	if s != h.sides[0] {
		return nil
	}
	const name = "net/ipv4/vs/conntrack"
	value, err := os.ReadFile(h.plugin.edges.parameters + name)
	if err != nil {
		return err
	}
	set := strings.TrimSpace(string(value)) == "1"
	if set && h.untracked == 0 {
		return nil
	}
	if !set && h.sysctls != sdk.ExpectSysctls {
		h.env.Log.Warn("somebody set net.ipv4.vs.conntrack to 0; it is set again")
		if err := h.plugin.edges.settings(s.book.ground.node, h.options).Take(h.env.Ledger, mode, h.env.Log); err != nil {
			return err
		}
	}
	return h.seeUntracked()
}
