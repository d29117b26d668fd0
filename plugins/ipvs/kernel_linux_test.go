// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// world is the node of this test, and hosts around it.
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
	case !ipvsThere():
		t.Skip("needs a kernel with IPVS: make test-ipvs brings one")
	}
}

// run runs a tool, as an operator would.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// A part says which share of the tests this process runs, as "1/2".
type part struct{ this, of uint32 }

func readPart() (p part) {
	if _, err := fmt.Sscanf(cmp.Or(os.Getenv("POINTSMAN_PART"), "1/1"), "%d/%d", &p.this, &p.of); err != nil {
		panic("POINTSMAN_PART is not like 1/2: " + err.Error())
	}
	return p
}

// has reports whether a test of this name is in the part.
func (p part) has(name string) bool {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()%p.of == p.this-1
}

// A share of the checks is run, and no other.
type share struct {
	sdktest.T
	part part
}

func (s share) Check(name string, run func() sdktest.Finding) {
	if s.part.has(name) && !(emulated() && slices.Contains(large, name)) {
		s.T.Check(name, run)
	}
}

// large are the checks with ten thousand Services, which take minutes in a kernel that
// is a process itself. TestConforms has them.
var large = []string{"C05/ten-thousand-services", "C11/context-ends-in-sync"}

func emulated() bool {
	text, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && strings.Contains(string(text), "User Mode Linux")
}

// inPart skips a test that another process runs.
func inPart(t *testing.T) {
	t.Helper()
	if p := readPart(); !p.has(t.Name()) {
		t.Skipf("not in part %d of %d", p.this, p.of)
	}
}

// The suite, with real packets: every scenario, and every line of the contract.
func TestKernelIPVSConforms(t *testing.T) {
	g := world(t)
	dir := t.TempDir()
	s := sdktest.InProcess(Description, func() sdk.Dataplane { return New(dir) })
	s.Testbed = g
	s.Timeout = 3 * time.Minute
	s.Disturb = func(context.Context) error { return exec.Command("ipvsadm", "-C").Run() }
	s.Foreign = foreign(t)
	sdktest.Conform(share{sdktest.Testing(t), readPart()}, s)
}

// foreign makes things of other people's, and returns what shows them with all else
// that is not ours.
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
