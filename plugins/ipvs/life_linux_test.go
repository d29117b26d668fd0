// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

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

// The kernel has the timeouts and parameters that the options set.
func TestKernelIPVSOptions(t *testing.T) {
	s := newFixture(t, `{"strictARP":true,"tcpTimeout":"20m","tcpFinTimeout":"90s","udpTimeout":"4m","scheduler":"lc"}`)
	s.packets(s.serve(twoEndpoints))
	if answers := run(t, "ipvsadm", "-l", "--timeout"); !strings.Contains(answers, "1200 90 240") {
		t.Errorf("timeouts: %s", answers)
	}
	for name, want := range map[string]string{"arp_ignore": "1", "arp_announce": "2"} {
		if have, err := os.ReadFile("/proc/sys/net/ipv4/conf/all/" + name); err != nil || strings.TrimSpace(string(have)) != want {
			t.Errorf("%s is %s, %v", name, have, err)
		}
	}
	if !s.shows("-A -t 172.30.0.41:80 -s lc") {
		t.Errorf("the scheduler lc is not in\n%s", strings.Join(s.services(), "\n"))
	}
}

// A step that the kernel refuses is reported, and the steps after it are executed.
func TestKernelIPVSSendsMany(t *testing.T) {
	s := newFixture(t, "")
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
			t.Errorf("the last results are %v", answers[n-3:])
		}
	}
	shown := s.services()
	if len(shown) != 80 || !slices.Contains(shown, "-a -t 172.30.7.7:80 -r 10.180.1.1:8080 -m -w 3") {
		t.Errorf("ipvsadm prints %d lines:\n%s", len(shown), strings.Join(shown, "\n"))
	}
}
