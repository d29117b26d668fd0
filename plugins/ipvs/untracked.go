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
		if !slices.ContainsFunc(flowsOf(flows), func(f flow) bool { return sdk.FamilyOf(f.to.Addr()) == of }) {
			continue // it may know very many, of which none matters
		}
		if err := s.plugin.machine.tracked(of, func(f flow) { delete(flows, f); s.env.Step() }); err != nil {
			return fmt.Errorf("look for untracked %s connections: %w", of, err)
		}
	}
	s.tellUntracked(len(flows))
	return nil
}

func flowsOf(all map[flow]bool) []flow { return slices.Collect(maps.Keys(all)) }

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
	list, err := os.Open(s.plugin.machine.connections)
	if err != nil {
		return nil, fmt.Errorf("read the connections: %w", err)
	}
	defer list.Close()
	all := make(map[flow]bool)
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		if f, ok := establishedIn(lines.Text()); ok && s.serves(f) {
			all[f] = true
		}
	}
	return all, lines.Err()
}

func (s *session) serves(f flow) bool {
	at := serviceKey{family: sdk.FamilyOf(f.to.Addr()), protocol: f.protocol, addr: f.to}
	return slices.ContainsFunc(s.families, func(f *family) bool { _, ours := f.objects.have.services[at]; return ours })
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
	if !set && s.sysctls != sdk.ExpectSysctls {
		s.env.Log.Warn("another program set net.ipv4.vs.conntrack to 0; it is set again")
		if err := s.plugin.machine.settings(f.objects.node.node, s.options).Take(s.env.Ledger, mode, s.env.Log); err != nil {
			return err
		}
	}
	return s.seeUntracked()
}
