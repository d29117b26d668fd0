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
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file, which -update writes.
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
		t.Errorf("%s is otherwise now; -update writes it anew:\n%s", file, text)
	}
}

// The steps that lead from nothing to a scenario, and from there to nothing.
func TestPlans(t *testing.T) {
	for _, s := range sdktest.Scenarios() {
		if !slices.Contains([]string{"cluster-ip", "node-port-local", "source-ranges", "udp"}, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			o := newObjects(sdk.IPv4)
			o.role = sdk.Active
			for _, a := range s.Node.Addrs {
				o.have.others[a] = true
			}
			o.node = nodeConfig{family: sdk.IPv4, node: s.Node, addrs: s.Node.Addrs[:1], scheduler: "rr"}
			there, gone := make(map[sdk.Name]desired), make(map[sdk.Name]desired)
			for _, svc := range s.Services {
				if svc.Name.Family != sdk.IPv4 {
					continue
				}
				p, err := (&family{objects: o}).Want(svc)
				if err != nil {
					t.Fatal(err)
				}
				there[svc.Name], gone[svc.Name] = p, desired{}
			}
			golden(t, "testdata/plans/"+s.Name+".golden", fmt.Sprintf("%s\n\nthere:\n%s\n\nand gone:\n%s\n", strings.TrimSpace(s.Doc), o.taken(there), o.taken(gone)))
		})
	}
}

// taken is the plan that pieces lead to, as if every step of it was taken. What is
// made once, whatever Services there are, is left out.
func (o *objects) taken(pieces map[sdk.Name]desired) string {
	o.put(pieces)
	p := o.plan()
	for _, s := range p {
		o.done(s)
	}
	o.touched = newTouched()
	return slices.DeleteFunc(p, func(s step) bool { return s.verb == makeSet || s.verb == writeRules }).String()
}

// The fixed chains are not rendered for a plan where nothing was touched: that would be more
// than 150 allocations, with each change.
func TestAPlanOfNothingRendersNothing(t *testing.T) {
	l := newLife(t)
	if err := l.full(many(10)); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	for _, f := range l.plugin.session.families {
		if n := testing.AllocsPerRun(10, func() { f.objects.plan() }); n > 20 {
			t.Errorf("of %s it is %v allocations", f.objects.node.family, n)
		}
	}
}

// The rules, which depend on the node alone.
func TestRules(t *testing.T) {
	s := sdktest.Scenarios()[0]
	for _, of := range families {
		o := newObjects(of)
		o.role = sdk.Active
		o.node = nodeConfig{family: of, node: s.Node, scheduler: "rr"}
		standing, leading := o.planRules()
		golden(t, "testdata/rules-"+of.String()+".golden", slices.Concat(standing, leading).Script(iptables.NFT).String())
	}
}
