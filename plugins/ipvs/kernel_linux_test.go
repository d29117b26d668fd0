// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/field"
	"github.com/pointsman/pointsman/test/share"
)

func TestMain(m *testing.M) { netns.Main(m) }

// world returns the node of this test and the hosts around it.
func world(t testing.TB) *netns.Testbed {
	t.Helper()
	needsIPVS(t)
	g, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func needsIPVS(t testing.TB) {
	t.Helper()
	switch {
	case os.Getuid() != 0:
		t.Skip("needs root: it writes to a kernel, in a namespace of its own")
	case !isIPVSLoaded():
		t.Skip("needs a kernel with IPVS: make test-ipvs brings one")
	}
}

// run runs a program and returns its output.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// large lists the checks with ten thousand Services. They take minutes in a user-mode kernel, and TestConforms runs
// them, too.
var large = []string{"C05/ten-thousand-services", "C11/context-ends-in-sync"}

func emulated() bool {
	text, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && strings.Contains(string(text), "User Mode Linux")
}

// skipIfTaken skips a test that another process of this run executes.
func skipIfTaken(t *testing.T) {
	t.Helper()
	if !share.Take(t.Name()) {
		t.Skip("another guest of this run executes this test")
	}
}

// TestKernelIPVSConforms runs the conformance suite with real packets: every scenario and every check of the contract.
func TestKernelIPVSConforms(t *testing.T) {
	g := world(t)
	dir := t.TempDir()
	s := sdktest.InProcess(Description, func() sdk.Dataplane { return New(dir) })
	s.Testbed = g
	s.Timeout = 3 * time.Minute
	s.Disturb = func(context.Context) error { return exec.Command("ipvsadm", "-C").Run() }
	s.Foreign = foreign(t)
	s.Only = func(check string) bool { // of those that no other process executes
		return !(emulated() && slices.Contains(large, check)) && share.Take("TestKernelIPVSConforms/"+check)
	}
	sdktest.Conform(t, s)
}

// TestKernelIPVSField runs cases from public bug reports.
func TestKernelIPVSField(t *testing.T) {
	skipIfTaken(t)
	g := world(t)
	p := newPlugin(t.TempDir(), thisMachine())
	if _, err := p.Configure(t.Context(), sdk.Setup{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // otherwise it would restore what the next test removes
		_, err := p.Cleanup(context.Background(), sdk.Leftovers{})
		if err := errors.Join(err, p.Close()); err != nil {
			t.Error(err)
		}
	})
	field.Check(t, g, p, false)
	field.Beside(t, g, p, "iptables-legacy", false, false)
}

// foreign creates objects of other programs. It returns a function that lists them together with everything else that
// is not ours.
func foreign(t *testing.T) func(context.Context) (string, error) {
	run(t, "sh", "-ec", `ipvsadm -A -t 203.0.113.9:443 -s wlc; ipvsadm -a -t 203.0.113.9:443 -r 10.9.9.9:443 -m -w 7
		ipset create OTHER hash:ip; ipset add OTHER 203.0.113.9
		ip link add other0 type dummy; ip address add 203.0.113.9/32 dev other0
		iptables-legacy -t nat -N OTHER; iptables-legacy -t nat -A POSTROUTING -j OTHER`)
	t.Cleanup(func() {
		run(t, "sh", "-ec", `ipvsadm -D -t 203.0.113.9:443 || true; ip link delete other0; ipset destroy OTHER
			iptables-legacy -t nat -D POSTROUTING -j OTHER; iptables-legacy -t nat -X OTHER`)
	})
	return func(ctx context.Context) (string, error) {
		out, err := exec.CommandContext(ctx, "sh", "-c", `ipvsadm -Sn; ipset save; ip -o address show dev other0
			iptables-legacy-save | grep -v '^[#:]'; ip6tables-legacy-save | grep -v '^[#:]'; true`).CombinedOutput()
		var theirs []string
		for _, line := range lines(string(out)) {
			if !strings.Contains(line, "KUBE-") && (!strings.HasPrefix(line, "-A -") && !strings.HasPrefix(line, "-a -") || strings.Contains(line, "203.0.113.9")) {
				theirs = append(theirs, line)
			}
		}
		return strings.Join(theirs, "\n"), err
	}
}

// Each scheduler of this kernel serves when a Service selects it, and no client is refused while an endpoint of the
// Service is being drained.
func TestKernelIPVSSchedulers(t *testing.T) {
	s := newFixture(t, "")
	var services, packets strings.Builder
	for i, scheduler := range schedulers {
		fmt.Fprintf(&services, "ns1/%s:http tcp\n  cluster-ip 172.30.1.%d:80\n  endpoint 10.180.1.1:8080\n  endpoint 10.180.1.2:8080\n  hint ipvs.scheduler=%s\n", scheduler, i, scheduler)
		fmt.Fprintf(&packets, "10.180.0.9 > 172.30.1.%d:80 = 10.180.1.1:8080 10.180.1.2:8080\n", i)
	}
	both := s.serve("-- services --\n" + services.String() + "-- packets --\n" + packets.String())
	shown := strings.Join(s.services(), "\n")
	for i, scheduler := range schedulers {
		if !strings.Contains(shown, fmt.Sprintf("-A -t 172.30.1.%d:80 -s %s", i, scheduler)) {
			t.Errorf("no virtual server has the scheduler %s", scheduler)
		}
	}
	for _, p := range both.Packets {
		s.packet(p)
	}
	one := both
	one.Services = nil
	for _, svc := range both.Services {
		svc.Cluster = svc.Cluster[1:]
		one.Services = append(one.Services, svc)
	}
	s.sync(sdk.Update{Set: one.Services})
	for _, p := range both.Packets {
		p.Want.Endpoints = p.Want.Endpoints[1:]
		for range 2 {
			s.packet(p)
		}
	}
}
