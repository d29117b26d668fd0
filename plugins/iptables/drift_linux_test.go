// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// A harm is something that others do to tables; PROGRAM stands for iptables. Chains
// are deleted as far as nothing was put back into them yet.
type harm struct {
	why      string
	commands []string
	only     iptables.Backend // empty: both
}

var harms = []harm{
	{"all is flushed", []string{"PROGRAM -t nat -F", "PROGRAM -t filter -F"}, ""},
	{"all is flushed and deleted", []string{"PROGRAM -t nat -F", "PROGRAM -t nat -X || :", "PROGRAM -t filter -F", "PROGRAM -t filter -X || :"}, ""},
	{"a firewall loads its own rules instead", []string{"PROGRAM -t nat -F", "PROGRAM -t nat -X || :", "PROGRAM -t filter -F", "PROGRAM -t filter -X || :", "PROGRAM -A INPUT -p icmp -j ACCEPT", "PROGRAM -t nat -A POSTROUTING -o theirs -j MASQUERADE"}, ""},
	{"a firewall reloads, by a restore that flushes", []string{`printf '*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n:THEIRS -\n-A INPUT -p 97 -j THEIRS\nCOMMIT\n*nat\n:PREROUTING ACCEPT\n:POSTROUTING ACCEPT\n-A POSTROUTING -o theirs -j MASQUERADE\nCOMMIT\n' | PROGRAM-restore`}, ""},
	{"one jump is deleted", []string{`PROGRAM -t nat -D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`}, ""},
	{"one chain is emptied", []string{"PROGRAM -t nat -F CLUSTER"}, ""},
	{"the way in is emptied", []string{"PROGRAM -t nat -F KUBE-SERVICES"}, ""},
	{"one rule is deleted", []string{"PROGRAM -t nat -D KUBE-POSTROUTING 1"}, ""},
	{"one rule is deleted, and another table is changed", []string{"PROGRAM -A INPUT -p 98 -j ACCEPT; PROGRAM -t nat -D KUBE-POSTROUTING 1"}, ""},
	{"one rule is replaced", []string{"PROGRAM -t nat -R KUBE-POSTROUTING 1 -p tcp -m comment --comment theirs -j RETURN"}, ""},
	{"a rule is added to the way in", []string{"PROGRAM -t nat -I KUBE-SERVICES -p tcp --dport 80 -j RETURN"}, ""},
	{"a rule is replaced by one that is as long", []string{`PROGRAM-save -t nat | sed 's/--to-destination \(.*\)1:/--to-destination \12:/' | PROGRAM-restore`}, ""},
	{"a rule that only nft prints is added to the way in", []string{`nft insert rule ip nat KUBE-SERVICES iifname { "wan0", "wan1" } return`}, iptables.NFT},
	{"a table is deleted", []string{"nft delete table ip nat"}, iptables.NFT},
	{"everything is deleted", []string{"nft flush ruleset"}, iptables.NFT},
}

// run does it to the tables in which the Service called name is served.
func (h harm) run(k kernel, name sdk.Name) {
	k.Helper()
	for _, c := range h.commands {
		program := "iptables-" + string(k.backend)
		c = strings.NewReplacer("PROGRAM-restore", program+"-restore -w", "PROGRAM-save", program+"-save", "PROGRAM", program+" -w", "CLUSTER", clusterChain(name)).Replace(c)
		if strings.HasPrefix(c, "nft ") {
			if _, err := exec.LookPath("nft"); err != nil {
				k.Skip("needs the program nft")
			}
		}
		k.run("sh", "-c", c)
	}
}

// What another program does to the tables is noticed without an update, and put
// right. It is counted, and in five seconds when the machine has time.
func TestKernelPutsBackWhatOthersTake(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := scenario(k.T, "cluster-ip")
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		repaired := uint64(0)
		for _, h := range harms {
			if h.only != "" && h.only != k.backend {
				continue
			}
			k.Run(h.why, func(t *testing.T) {
				k := k.on(t)
				h.run(k, s.Services[0].Name)
				began := time.Now()
				k.eventually("the tables are right again", func() bool { return len(k.wrong(s, sdk.Active)) == 0 })
				t.Logf("put back after %s", time.Since(began))
				k.eventually("it is counted", func() bool { return p.Report().Repaired > repaired })
				repaired = p.Report().Repaired
			})
		}
	})
}

// Once rules were removed it is listened for who does, and the next repair names the program, where the kernel
// tells.
func TestKernelNamesWhoRemovesRules(t *testing.T) {
	onKernel(t, func(k kernel) {
		p := k.start()
		k.sync(p, scenario(k.T, "cluster-ip").Update(1))
		k.role(p, sdk.Active)
		program := "iptables-" + string(k.backend)
		for n := range uint64(2) {
			k.run(program, "-t", "nat", "-I", "KUBE-SERVICES", "-j", "RETURN")
			k.eventually("it is repaired", func() bool { return p.Report().Repaired == n+1 })
			k.eventually("a look finds nothing lost", func() bool { return p.Report().Lost == "" })
		}
		said := p.Report().Repair
		if named := strings.Contains(said, "written to by iptables-nft (pid "); !strings.Contains(said, "KUBE-SERVICES") || named != (k.backend == iptables.NFT) {
			k.Errorf("it is said: %q", said)
		}
	})
}

// What others do with their own rules is theirs: nothing is written for it.
func TestKernelLeavesOthersAlone(t *testing.T) {
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
		k.eventually("a look has found out what the others did", func() (found bool) {
			if err := p.Do(k.Context(), func(map[sdk.Name]sdk.Service) error {
				ours.Look(k.Context())
				found = !ours.Waits()
				return nil
			}); err != nil {
				k.Fatal(err)
			}
			return found
		})
		if n := p.Report().Repaired; n != 0 || ours.Doubt() != "" || ours.RuleCount("nat") != written {
			k.Errorf("%d repairs of what was not ours, and this doubt: %q", n, ours.Doubt())
		}
	})
}

// The slow audit finds what no notification says: a rule that was replaced by another.
func TestKernelAuditFindsWhatWasReplaced(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := scenario(k.T, "cluster-ip")
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		ours, doubt := p.families[0].rules, ""
		if err := p.Do(k.Context(), func(map[sdk.Name]sdk.Service) error { // nothing else looks meanwhile
			k.run("iptables-"+string(k.backend), "-t", "nat", "-R", clusterChain(s.Services[0].Name), "1", "-j", "RETURN")
			n := len(ours.node.jumps(sdk.Active))
			ours.EachChain(func(iptables.ID, string) { n++ })
			for range 2 * n { // a round may have begun before
				ours.Audit(k.Context())
			}
			doubt = ours.Doubt()
			return nil
		}); err != nil {
			k.Fatal(err)
		}
		if doubt == "" {
			k.Fatal("a whole round found nothing")
		}
		k.eventually("the tables are right again", func() bool { return len(k.wrong(s, sdk.Active)) == 0 })
	})
}
