// SPDX-License-Identifier: Apache-2.0

package masquerade

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// leave has holder leave, after a dry run that says the same.
func (k kernel) leave(holder string, l sdk.Leftovers) string {
	k.Helper()
	before := iptables.Join(k.nat()[mark])
	no := func(iptables.ID) bool { return false }
	dry := l
	dry.DryRun = true
	named, err := Leave(k.Context(), k.dir, holder, []iptables.Tool{k.tool}, dry, no)
	if err != nil || iptables.Join(k.nat()[mark]) != before {
		k.Errorf("a dry run: %v", err)
	}
	gone, err := Leave(k.Context(), k.dir, holder, []iptables.Tool{k.tool}, l, no)
	if err != nil {
		k.Fatal(err)
	}
	if strings.Join(named, "\n") != strings.Join(gone, "\n") {
		k.Errorf("it says %q, and the dry run %q", gone, named)
	}
	return strings.Join(gone, "\n")
}

// TestKernelLastOneOut: the second dataplane writes nothing, and the last to leave removes
// the object, not one that leaves before.
func TestKernelLastOneOut(t *testing.T) {
	onKernel(t, func(k kernel) {
		one, two := k.hold("iptables"), k.hold("userspace")
		if steps := k.ensure(one, 14); len(steps) == 0 {
			k.Error("the first one wrote nothing")
		}
		k.stands("with one", 14)
		if steps := k.ensure(two, 14); len(steps) > 0 {
			k.Errorf("the second one wrote %q", steps)
		}
		if said := k.leave("iptables", sdk.Leftovers{}); said != "" {
			k.Errorf("the first one to leave says %q", said)
		}
		k.stands("with the second one", 14)
		if said := k.leave("userspace", sdk.Leftovers{}); !strings.Contains(said, "remove nat "+Mark) {
			k.Errorf("the last one to leave says %q", said)
		}
		k.gone("with none")
		if said := k.leave("userspace", sdk.Leftovers{}); said != "" {
			k.Errorf("after all it says %q", said)
		}
		if files, _ := filepath.Glob(filepath.Join(k.dir, "*.json")); len(files) > 0 {
			k.Errorf("the ledger still has %q", files)
		}
	})
}

// TestKernelWhatStays: an object stays that was there before us, that a kubelet makes, or that
// foreign rules lead to, and of which the ledger was lost; and it is said why.
func TestKernelWhatStays(t *testing.T) {
	const whole = ":KUBE-MARK-MASQ -\n:KUBE-POSTROUTING -\n-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n" +
		`-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING` + "\n"
	const kubelet = whole + ":KUBE-KUBELET-CANARY -\n:KUBE-MARK-DROP -\n-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000\n"
	for name, c := range map[string]struct {
		before string
		meant  func(kernel) // while it is held
		stays  string       // why; empty: it goes
	}{
		"there was one":       {before: ":KUBE-MARK-MASQ -\n-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n", stays: "they were there before us"},
		"a kubelet made it":   {before: kubelet, stays: "they were there before us"},
		"beside kube-proxy's": {before: kubelet + ":KUBE-PROXY-CANARY -\n", stays: "they were there before us"},
		"kube-proxy's":        {before: whole + ":KUBE-PROXY-CANARY -\n"},
		"a kubelet came": {meant: func(k kernel) {
			k.run("-N KUBE-KUBELET-CANARY")
			k.run("-N KUBE-MARK-DROP")
			k.run("-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000")
		}, stays: "a kubelet made them"},
		"a foreign chain":       {meant: func(k kernel) { k.run("-N CNI-HOSTPORT-SETMARK"); k.run("-A CNI-HOSTPORT-SETMARK -j " + Mark) }, stays: "a rule of CNI-HOSTPORT-SETMARK leads to " + Mark},
		"a foreign jump":        {meant: func(k kernel) { k.run("-A PREROUTING -d 203.0.113.7 -j " + Mark) }, stays: "a rule of PREROUTING leads to " + Mark},
		"the ledger was lost":   {meant: func(k kernel) { k.lose(); k.ensure(k.hold("iptables"), 14) }, stays: "they were there before us"},
		"the ledger is no text": {meant: func(k kernel) { k.spoil(); k.ensure(k.hold("iptables"), 14) }, stays: "they were there before us"},
	} {
		t.Run(name, func(t *testing.T) {
			onKernel(t, func(k kernel) {
				k.restore(c.before)
				k.ensure(k.hold("iptables"), 14)
				if c.meant != nil {
					c.meant(k)
				}
				said := k.leave("iptables", sdk.Leftovers{})
				if c.stays == "" {
					k.gone("left")
					return
				}
				if !strings.HasSuffix(said, "keep nat KUBE-MARK-MASQ and KUBE-POSTROUTING: "+c.stays) {
					k.Errorf("it says %q", said)
				}
				k.stands("left", 14)
				for range 2 { // also for a call that asks for what kube-proxy left
					said := k.leave("iptables", sdk.Leftovers{KubeProxy: true})
					foreign := strings.HasPrefix(c.stays, "a rule of ") // which is said each time
					if foreign != strings.HasSuffix(said, "keep nat KUBE-MARK-MASQ and KUBE-POSTROUTING: "+c.stays) || !foreign && said != "" {
						k.Errorf("asked again it says %q", said)
					}
					k.stands("asked again", 14)
				}
			})
		})
	}
}

// lose is what happens to a ledger when its directory is removed.
func (k kernel) lose() {
	for _, f := range k.files() {
		_ = os.Remove(f)
	}
}

func (k kernel) spoil() {
	for _, f := range k.files() {
		_ = os.WriteFile(f, []byte("{"), 0o600)
	}
}

func (k kernel) files() []string {
	files, _ := filepath.Glob(filepath.Join(k.dir, "*.json"))
	return files
}

// TestKernelKeptByForeignRulesOnly: what only foreign rules kept goes with the next cleanup
// once they are gone.
func TestKernelKeptByForeignRulesOnly(t *testing.T) {
	onKernel(t, func(k kernel) {
		k.ensure(k.hold("ipvs"), 14)
		k.run("-A PREROUTING -d 203.0.113.7 -j " + Mark)
		k.leave("ipvs", sdk.Leftovers{})
		k.stands("a foreign rule leads there", 14)
		k.run("-D PREROUTING -d 203.0.113.7 -j " + Mark)
		k.leave("iptables", sdk.Leftovers{})
		k.gone("the foreign rule went")
	})
}

// TestKernelKubeProxyLeft: what kube-proxy left goes when asked for, and not before; what
// speaks of a set that goes too is taken out of an object that stays.
func TestKernelKubeProxyLeft(t *testing.T) {
	left := `:KUBE-MARK-MASQ -
:KUBE-POSTROUTING -
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
`
	onKernel(t, func(k kernel) {
		k.restore(left)
		if said := k.leave("iptables", sdk.Leftovers{}); said != "" {
			k.Errorf("not asked for, it says %q", said)
		}
		k.stands("not asked for", 14)
		if said := k.leave("iptables", sdk.Leftovers{KubeProxy: true}); !strings.Contains(said, "remove nat KUBE-POSTROUTING") {
			k.Errorf("asked for, it says %q", said)
		}
		k.gone("asked for")
		k.restore(":KUBE-MARK-MASQ -\n") // half of it: not kube-proxy's
		k.leave("iptables", sdk.Leftovers{KubeProxy: true})
		if _, there := k.nat()[mark]; !there {
			k.Error("what kube-proxy did not leave is gone")
		}
	})
	t.Run("sets", func(t *testing.T) {
		v := leaver{leftovers: sdk.Leftovers{KubeProxy: true}}
		b := v.withoutKubeProxySets(iptables.Tables{postrouting: {"-m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE", "-j RETURN"}})
		if len(b.Whole) != 1 || iptables.Join(b.Whole[0].Rules) != "-j RETURN\n" {
			t.Errorf("kept is %v", b)
		}
	})
}
