// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

const twoEndpoints = `
-- services --
ns1/web:http tcp
  cluster-ip 172.30.0.41:80
  endpoint   10.180.1.1:8080
  endpoint   10.180.1.2:8080
-- packets --
10.180.0.9 > 172.30.0.41:80 = 10.180.1.1:8080 10.180.1.2:8080
`

// Options are what the kernel has, in its own words.
func TestKernelIPVSOptions(t *testing.T) {
	s := newStand(t, `{"strictARP":true,"tcpTimeout":"20m","tcpFinTimeout":"90s","udpTimeout":"4m","scheduler":"lc","excludeCIDRs":["172.30.9.0/24"]}`)
	run(t, "ipvsadm", "-A", "-t", "172.30.9.9:80", "-s", "wrr")
	run(t, "ipset", "create", "PM-CLUSTER-IP", "hash:ip,port", "comment", "maxelem", fmt.Sprint(mostEntries), "-exist")
	run(t, "ipset", "add", "PM-CLUSTER-IP", "172.30.9.9,tcp:80", "-exist")
	t.Cleanup(func() { run(t, "ipvsadm", "-C") })
	s.packets(s.serve(twoEndpoints))
	if answers := run(t, "ipvsadm", "-l", "--timeout"); !strings.Contains(answers, "1200 90 240") {
		t.Errorf("timeouts: %s", answers)
	}
	for name, want := range map[string]string{"arp_ignore": "1", "arp_announce": "2"} {
		if have, err := os.ReadFile("/proc/sys/net/ipv4/conf/all/" + name); err != nil || strings.TrimSpace(string(have)) != want {
			t.Errorf("%s is %s, %v", name, have, err)
		}
	}
	shown := strings.Join(s.services(), "\n")
	for _, want := range []string{"-A -t 172.30.0.41:80 -s lc", "-A -t 172.30.9.9:80 -s wrr"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in\n%s", want, shown)
		}
	}
}

// A client keeps its endpoint, and that can be exported to the next dataplane.
func TestKernelIPVSHandsOverAffinity(t *testing.T) {
	s := newStand(t, "")
	served := s.serve(strings.Replace(twoEndpoints, "  endpoint   10.180.1.1:8080\n", "  affinity 10m\n  endpoint   10.180.1.1:8080\n", 1))
	first := s.packet(served.Packets[0])
	for range 6 {
		if a := s.packet(served.Packets[0]); a.Endpoint != first.Endpoint {
			t.Errorf("a client of %s is sent to %s", first.Endpoint, a.Endpoint)
		}
	}
	if shown := strings.Join(s.services(), "\n"); !strings.Contains(shown, "-p 600") {
		t.Errorf("the virtual server does not persist:\n%s", shown)
	}
	var answer []sdk.AffinityEntry
	if err := s.plugin.ExportAffinity(t.Context(), func(entry sdk.AffinityEntry) error { answer = append(answer, entry); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(answer) != 1 || answer[0].Endpoint != first.Endpoint || answer[0].Client != netip.MustParseAddr("10.180.0.9") || answer[0].Left <= 0 || answer[0].Left > 10*time.Minute {
		t.Errorf("told is %+v; %s was found", answer, first.Endpoint)
	}
}

// A careful linker looks around before it binds an address.
type careful struct {
	linker
	before func(netip.Addr)
}

func (c careful) Bind(addr netip.Addr) error {
	c.before(addr)
	return c.linker.Bind(addr)
}

// From the moment that the first address is bound the node calls by it, and its own
// listeners can be reached by it: what forbids both is there by then.
func TestKernelIPVSGuardAndMasqueradeComeFirst(t *testing.T) {
	s := newStand(t, "")
	bound := 0
	k := s.plugin.kernel
	k.linker = careful{k.linker, func(addr netip.Addr) {
		bound++
		rules := run(t, map[bool]string{true: "iptables-legacy-save", false: "ip6tables-legacy-save"}[addr.Is4()])
		for _, want := range []string{"-A INPUT -j " + guard, "-A POSTROUTING -j " + postrouting} {
			if !strings.Contains(rules, want) {
				t.Errorf("%s is bound, and there is no %q in\n%s", addr, want, rules)
			}
		}
	}}
	s.plugin.kernel = k
	for _, family := range s.plugin.session.families {
		family.kernel = k
	}
	s.packets(s.serve(loadBalancer))
	if bound == 0 {
		t.Error("no address was bound")
	}
}

// Among many steps, one that the kernel refuses does not hold up the others, and is named.
func TestKernelIPVSSendsMany(t *testing.T) {
	s := newStand(t, "")
	at := func(i int) serviceKey {
		return serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 30, 7, byte(i)}), 80)}
	}
	dest := addrPort("10.180.1.1:8080")
	var steps []step
	for i := range 40 {
		steps = append(steps, step{verb: addService, service: at(i), scheduling: scheduling{scheduler: "rr"}}, step{verb: addDest, service: at(i), dest: dest, weight: 1})
	}
	steps = append(steps,
		step{verb: addService, service: at(3), scheduling: scheduling{scheduler: "rr"}},
		step{verb: addDest, service: at(99), dest: dest, weight: 1},
		step{verb: weighDest, service: at(7), dest: dest, weight: 3})
	t.Cleanup(func() { run(t, "ipvsadm", "-C") })
	for range 2 {
		answers, err := s.plugin.kernel.Send(steps)
		if err != nil {
			t.Fatal(err)
		}
		n := len(steps)
		if !errors.Is(answers[n-3], unix.EEXIST) || !errors.Is(answers[n-2], unix.ESRCH) || answers[n-1] != nil {
			t.Errorf("it says %v", answers[n-3:])
		}
	}
	shown := s.services()
	if len(shown) != 80 || !slices.Contains(shown, "-a -t 172.30.7.7:80 -r 10.180.1.1:8080 -m -w 3") {
		t.Errorf("there are %d lines:\n%s", len(shown), strings.Join(shown, "\n"))
	}
}
