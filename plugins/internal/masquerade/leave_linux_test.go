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

// leave ends the hold of holder, and checks that a dry run before describes the same and changes nothing.
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
		k.Errorf("Leave returned %q, and the dry run %q", gone, named)
	}
	return strings.Join(gone, "\n")
}

// TestKernelLastHolder: the second holder writes nothing, and only the last one to leave removes the object.
func TestKernelLastHolder(t *testing.T) {
	onKernel(t, func(k kernel) {
		one, two := k.hold("iptables"), k.hold("userspace")
		if steps := k.ensure(one, 14); len(steps) == 0 {
			k.Error("the first holder wrote nothing")
		}
		k.checkPresent("with one holder", 14)
		if steps := k.ensure(two, 14); len(steps) > 0 {
			k.Errorf("the second holder wrote %q", steps)
		}
		if said := k.leave("iptables", sdk.Leftovers{}); said != "" {
			k.Errorf("the first holder to leave returned %q", said)
		}
		k.checkPresent("with the second holder", 14)
		if said := k.leave("userspace", sdk.Leftovers{}); !strings.Contains(said, "remove nat "+Mark) {
			k.Errorf("the last holder to leave returned %q", said)
		}
		k.checkRemoved("without a holder")
		if said := k.leave("userspace", sdk.Leftovers{}); said != "" {
			k.Errorf("leaving again returned %q", said)
		}
		if files, _ := filepath.Glob(filepath.Join(k.dir, "*.json")); len(files) > 0 {
			k.Errorf("the ledger still has %q", files)
		}
	})
}

// TestKernelKeptObject: an object stays if it existed before us, if a kubelet created it, if foreign rules jump to it,
// or if the ledger was lost. Leave says why.
func TestKernelKeptObject(t *testing.T) {
	const whole = ":KUBE-MARK-MASQ -\n:KUBE-POSTROUTING -\n-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n" +
		`-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING` + "\n"
	const kubelet = whole + ":KUBE-KUBELET-CANARY -\n:KUBE-MARK-DROP -\n-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000\n"
	for name, c := range map[string]struct {
		before string
		meant  func(kernel) // called while the object is held
		stays  string       // the reason; empty: the object is removed
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
					k.checkRemoved("left")
					return
				}
				if !strings.HasSuffix(said, "keep nat KUBE-MARK-MASQ and KUBE-POSTROUTING: "+c.stays) {
					k.Errorf("Leave returned %q", said)
				}
				k.checkPresent("left", 14)
				for range 2 { // also if kube-proxy's leftovers are to be removed
					said := k.leave("iptables", sdk.Leftovers{KubeProxy: true})
					foreign := strings.HasPrefix(c.stays, "a rule of ") // this reason is given each time
					if foreign != strings.HasSuffix(said, "keep nat KUBE-MARK-MASQ and KUBE-POSTROUTING: "+c.stays) || !foreign && said != "" {
						k.Errorf("the next cleanup returned %q", said)
					}
					k.checkPresent("asked again", 14)
				}
			})
		})
	}
}

// lose deletes the files of the ledger.
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

// TestKernelKeptByForeignRulesOnly: an object that stayed only because of foreign rules is removed by the next cleanup
// after these rules are gone.
func TestKernelKeptByForeignRulesOnly(t *testing.T) {
	onKernel(t, func(k kernel) {
		k.ensure(k.hold("ipvs"), 14)
		k.run("-A PREROUTING -d 203.0.113.7 -j " + Mark)
		k.leave("ipvs", sdk.Leftovers{})
		k.checkPresent("while a foreign rule jumps there", 14)
		k.run("-D PREROUTING -d 203.0.113.7 -j " + Mark)
		k.leave("iptables", sdk.Leftovers{})
		k.checkRemoved("the foreign rule was deleted")
	})
}

// TestKernelKubeProxyLeftovers: an object of kube-proxy is removed only if asked for. Rules that match a removed set
// are deleted from an object that stays.
func TestKernelKubeProxyLeftovers(t *testing.T) {
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
			k.Errorf("without KubeProxy, Leave returned %q", said)
		}
		k.checkPresent("not asked for", 14)
		if said := k.leave("iptables", sdk.Leftovers{KubeProxy: true}); !strings.Contains(said, "remove nat KUBE-POSTROUTING") {
			k.Errorf("with KubeProxy, Leave returned %q", said)
		}
		k.checkRemoved("asked for")
		k.restore(":KUBE-MARK-MASQ -\n") // an incomplete object is not kube-proxy's
		k.leave("iptables", sdk.Leftovers{KubeProxy: true})
		if _, there := k.nat()[mark]; !there {
			k.Error("an object that is not kube-proxy's was removed")
		}
	})
	t.Run("sets", func(t *testing.T) {
		v := leaver{leftovers: sdk.Leftovers{KubeProxy: true}}
		b := v.withoutKubeProxySets(iptables.Tables{postrouting: {"-m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE", "-j RETURN"}})
		if len(b.Whole) != 1 || iptables.Join(b.Whole[0].Rules) != "-j RETURN\n" {
			t.Errorf("the block is %v", b)
		}
	})
}
