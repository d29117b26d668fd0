// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/test/field"
)

// The dataplane repairs objects that another program deletes, flushes or clears.
func TestKernelIPVSRepairs(t *testing.T) {
	s := newFixture(t, "")
	served := s.serve(loadBalancer)
	before := s.snapshot()
	var harms []field.Harm
	for _, command := range []string{
		"ip link delete " + device,
		"ip address delete 172.30.0.41/32 dev " + device,
		"ipset flush PM-CLUSTER-IP",
		"ipset del PM-CLUSTER-IP 172.30.0.41,tcp:80",
		"ipset flush PM-NODE-PORT-TCP",
		"ipset flush PM-6-IPVS-IPS",
		"ipvsadm -C",
		"iptables-legacy -t nat -F",
		"ip6tables-legacy -t filter -F INPUT",
		"iptables-legacy -t mangle -F " + denied,
	} {
		harms = append(harms, field.Harm{What: command, Command: command})
	}
	field.Repairs(t, s.plugin, func() error {
		if after := s.snapshot(); after != before {
			return fmt.Errorf("the kernel has\n%s\nand had before\n%s", after, before)
		}
		return nil
	}, harms...)
	s.packets(served)
}

// snapshot returns all objects in the kernel as the text of its tools. Only the order of rules is significant.
func (s *fixture) snapshot() string {
	s.Helper()
	var all []string
	for _, look := range [][]string{{"ipvsadm", "-Sn"}, {"ipset", "save"}, {"ip", "-o", "address", "show", "dev", device}} {
		shown := lines(run(s.T, look[0], look[1:]...))
		for i, line := range shown {
			_, after, found := strings.Cut(line, ": "+device)
			if found {
				shown[i] = after // the interface index may differ
			}
		}
		slices.Sort(shown)
		all = append(all, shown...)
	}
	for _, look := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
		for _, line := range lines(run(s.T, look)) {
			if line[0] != '#' && line[0] != ':' {
				all = append(all, line)
			}
		}
	}
	return strings.Join(all, "\n")
}
