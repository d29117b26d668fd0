// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/field"
)

// Changes that another program makes to our rules are detected without an update, and repaired.
func TestKernelRestoresWhatOthersRemove(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := scenario(k.T, "cluster-ip")
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		program := "iptables-" + string(k.backend)
		differs := func() error {
			if wrong := k.differences(s, sdk.Active); len(wrong) > 0 {
				return errors.New(strings.Join(wrong, "\n"))
			}
			return nil
		}
		own := []field.Harm{
			{What: "one jump is deleted", Command: program + ` -w -t nat -D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
			{What: "a shared rule is deleted", Command: program + " -w -t nat -D KUBE-POSTROUTING 1"},
			{What: "a rule is replaced by one that is as long", Command: program + `-save -t nat | sed 's/--to-destination \(.*\)1:/--to-destination \12:/' | ` + program + "-restore -w"},
		}
		field.Repairs(k.T, p, differs, append(field.Harms(program, services, clusterChain(s.Services[0].Name)), own...)...)
	})
}

// A change of foreign rules causes no write.
func TestKernelIgnoresForeignRules(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := scenario(k.T, "cluster-ip")
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		program := "iptables-" + string(k.backend)
		for range 3 {
			k.run(program, "-N", "THEIRS")
			k.run(program, "-A", "THEIRS", "-j", "DROP")
			k.run(program, "-I", "INPUT", "-p", "99", "-j", "THEIRS")
			k.run(program, "-D", "INPUT", "-p", "99", "-j", "THEIRS")
			k.run(program, "-F", "THEIRS")
			k.run(program, "-X", "THEIRS")
		}
		ours := p.families[0].rules
		written := ours.RuleCount("nat")
		k.eventually("the foreign changes are checked", func() (found bool) {
			if err := p.Do(k.Context(), func(map[sdk.Name]sdk.Service) error {
				ours.Look(k.Context())
				_, waits := ours.Doubted()
				found = !waits
				return nil
			}); err != nil {
				k.Fatal(err)
			}
			return found
		})
		if n := p.Report().Repaired; n != 0 || ours.Doubt() != "" || ours.RuleCount("nat") != written {
			k.Errorf("foreign changes caused %d repairs, and this suspicion: %q", n, ours.Doubt())
		}
	})
}
