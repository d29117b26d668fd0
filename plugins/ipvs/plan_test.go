// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a golden file. The flag -update rewrites the file.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s differs from the result; run with -update to rewrite it:\n%s", file, text)
	}
}

// TestPlans compares the requests that create each scenario and remove it again with golden files. Objects that do not
// depend on Services are left out.
func TestPlans(t *testing.T) {
	for _, s := range sdktest.Scenarios() {
		if !slices.Contains([]string{"cluster-ip", "node-port-local", "source-ranges", "udp"}, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			l := start(t, sdktest.Scenario{Node: s.Node})
			var four []sdk.Service
			gone := sdk.Update{}
			for _, svc := range s.Services {
				if svc.Name.Family == sdk.IPv4 {
					four, gone.Delete = append(four, svc), append(gone.Delete, svc.Name)
				}
			}
			wrote := func(u sdk.Update) string {
				l.fake.counted()
				l.sync(u)
				return strings.ReplaceAll(strings.Join(l.fake.counted(), "\n"), "; ", "\n  ")
			}
			golden(t, "testdata/plans/"+s.Name+".golden", fmt.Sprintf("%s\n\nthere:\n%s\n\nand gone:\n%s\n", strings.TrimSpace(s.Doc), wrote(sdk.Update{Set: four}), wrote(gone)))
		})
	}
}

// A destination that no longer serves gets weight 0 only after its replacement has weight 1. A virtual server whose
// destinations all have weight 0 would refuse new connections.
func TestDestinationsServeBeforeOthersStop(t *testing.T) {
	s := many(1)
	l := start(t, s)
	l.fake.counted()
	s.Services[0].Cluster = []sdk.Endpoint{{Addr: endpoint(0, 3)}}
	l.sync(sdk.Update{Set: s.Services})
	want := `real 10.183.0.0:8080 of tcp 172.30.0.0:80: 1
real 10.183.0.0:8080 of tcp 192.0.2.10:20000: 1
real 10.181.0.0:8080 of tcp 172.30.0.0:80: 0
real 10.182.0.0:8080 of tcp 172.30.0.0:80: 0
real 10.181.0.0:8080 of tcp 192.0.2.10:20000: 0
real 10.182.0.0:8080 of tcp 192.0.2.10:20000: 0`
	if got := strings.Join(l.fake.counted(), "\n"); got != want {
		t.Errorf("the requests are\n%s\nwant\n%s", got, want)
	}
}

// A plan without changes does not render the fixed chains. That would cost more than 150 allocations for each change.
func TestEmptyPlanRendersNothing(t *testing.T) {
	l := start(t, many(10))
	for _, f := range l.plugin.session.families {
		if n := testing.AllocsPerRun(10, func() { f.Plan() }); n > 20 {
			t.Errorf("%s: a plan without changes takes %v allocations", f.node.family, n)
		}
	}
}

// TestRules compares the rules, which depend only on the node, with golden files.
func TestRules(t *testing.T) {
	s := sdktest.Scenarios()[0]
	for _, of := range families {
		f := newFamily(iptables.Tool{Family: of}, new(session))
		f.role = sdk.Active
		f.node = nodeConfig{family: of, node: s.Node, scheduler: "rr"}
		fake, text := rulestest.NewFake(nat(markMasq)), ""
		f.rules.Tool = iptables.Tool{Family: of, Backend: "fake", Kernel: fake}
		f.planRules()
		for range 2 {
			if err := f.writeRules(t.Context()); err != nil {
				t.Fatal(err)
			}
			text += fake.Last.String()
			f.rules.SetJumps(allJumps(), allJumps())
		}
		golden(t, "testdata/rules-"+of.String()+".golden", text)
	}
}
