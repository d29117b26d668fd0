// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Deleted, flushed, cleared by another program: it is back within five seconds, and mostly
// within two. A machine that is busy may take as much longer as it takes to look at
// everything, with the programs that an operator has, four times.
func TestKernelIPVSRepairs(t *testing.T) {
	s := newStand(t, "")
	served := s.serve(loadBalancer)
	before, _ := s.picture()
	for _, broken := range [][]string{
		{"ip", "link", "delete", device},
		{"ip", "address", "delete", "172.30.0.41/32", "dev", device},
		{"ipset", "flush", "PM-CLUSTER-IP"},
		{"ipset", "del", "PM-CLUSTER-IP", "172.30.0.41,tcp:80"},
		{"ipset", "flush", "PM-NODE-PORT-TCP"},
		{"ipset", "flush", "PM-6-IPVS-IPS"},
		{"ipvsadm", "-C"},
		{"iptables-legacy", "-t", "nat", "-F"},
		{"ip6tables-legacy", "-t", "filter", "-F", "INPUT"},
		{"iptables-legacy", "-t", "mangle", "-F", denied},
	} {
		words := strings.Join(broken, " ")
		repaired := s.plugin.Report().Repaired
		run(t, broken[0], broken[1:]...)
		began := time.Now()
		s.within(2*time.Minute, words+" is repaired", func() bool { return s.plugin.Report().Repaired > repaired })
		took := time.Since(began)
		after, look := s.picture()
		for ; after != before && took < 2*time.Minute; took = time.Since(began) { // each family is repaired by itself
			after, look = s.picture()
		}
		t.Logf("%s: repaired after %.1f s; a look takes %.1f s", words, took.Seconds(), look.Seconds())
		if took > 5*time.Second+4*look {
			t.Errorf("%s: that is too long", words)
		}
		if after != before {
			t.Errorf("%s: after the repair there is\n%s\nand before there was\n%s", words, after, before)
		}
	}
	s.packets(served)
}

// picture is all that the kernel has, in the words of its tools, and how long it took
// them. Only of rules does the order matter.
func (s *stand) picture() (string, time.Duration) {
	s.Helper()
	began := time.Now()
	var all []string
	for _, look := range [][]string{{"ipvsadm", "-Sn"}, {"ipset", "save"}, {"ip", "-o", "address", "show", "dev", device}} {
		shown := lines(run(s.T, look[0], look[1:]...))
		for i, line := range shown {
			_, after, found := strings.Cut(line, ": "+device)
			if found {
				shown[i] = after // its number may be another
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
	return strings.Join(all, "\n"), time.Since(began)
}
