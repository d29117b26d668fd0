// SPDX-License-Identifier: Apache-2.0

package masquerade

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A Hold is one dataplane's hold on the object in one place, that is, in one family and backend. Only one
// goroutine at a time may use it. The methods of a nil Hold do nothing, for modes without rules that lead to
// the object.
type Hold struct {
	Ledger *ledger.Ledger
	Holder string // the dataplane's name
	Tool   iptables.Tool

	of     *object   // nil means marking
	held   bool      // this process has written the object or found it correct
	wanted uint8     // the bit that the host set last
	bit    uint8     // the bit in the object's rules
	looked time.Time // when the object was last found correct; zero: check again
	unsure string    // why it is unknown whether the jump exists
}

// Unsure returns why it is unknown whether the jump to the object exists, or "" if it is known.
func (h *Hold) Unsure() string { return h.unsure }

// object returns the object that h holds.
func (h *Hold) object() *object {
	if h.of == nil {
		return marking
	}
	return h.of
}

// lookEvery is the interval at which the object is checked without any sign of a change.
const lookEvery = time.Minute

// timeout limits the wait for the ledger's lock.
const timeout = 20 * time.Second

// Ensure creates or repairs the object under the ledger's lock, and returns the steps that this took. It does
// nothing if the object was found correct and nothing has happened since. bit is the mark bit that the host has
// set. If that is the same as before, the bit in the ledger applies, because another dataplane may have got a
// newer one.
func (h *Hold) Ensure(ctx context.Context, bit uint8) (steps []string, err error) {
	if h == nil {
		return nil, nil
	}
	known := h.held && h.wanted == bit
	if known && !h.looked.IsZero() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name := h.object().name
	share, err := h.Ledger.Share(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, share.Close()) }()
	if latest, err := strconv.ParseUint(share.Facts[factBit], 10, 5); err == nil && known {
		h.bit = uint8(latest)
	} else {
		h.bit = bit
	}
	steps, err = h.write(ctx, share)
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", name, err)
	}
	h.held, h.wanted, h.looked = true, bit, time.Now()
	return steps, nil
}

// write records in the ledger that the dataplane holds the object, and then writes what the object lacks.
func (h *Hold) write(ctx context.Context, share *ledger.Share) ([]string, error) {
	tool, where := h.Tool, placeOf(h.Tool)
	tool.Hold = share.File()
	o := h.object()
	found, err := read(ctx, tool, append(o.ids(), o.jump.At)...)
	if err != nil {
		return nil, err
	}
	if share.Facts[where] == "" && h.of == forwarding {
		share.Facts[where] = made
	} else if share.Facts[where] == "" {
		others, err := read(ctx, tool, markDrop, kubeletCanary, proxyCanary)
		if err != nil {
			return nil, err
		}
		maps.Copy(others, found)
		share.Facts[where] = origin(others)
	}
	share.Facts[factBit] = strconv.Itoa(int(h.bit))
	share.Add(h.Holder)
	if err := share.Save(); err != nil {
		return nil, err
	}
	h.unsure = found.Unsure(o.jump.At)
	b := o.missing(found, h.bit)
	if b.Empty() {
		return nil, nil
	}
	s := new(iptables.Script)
	b.Write(s, tool.Backend)
	return b.Steps(), tool.Restore(ctx, s)
}

// Elsewhere returns the tool of the backend to which h does not write, if the ledger says that a dataplane
// wrote the object there.
func (h *Hold) Elsewhere(ctx context.Context) (tool iptables.Tool, there bool) {
	if h == nil || h.Tool.Kernel != nil {
		return tool, false
	}
	other := iptables.Tool{Family: h.Tool.Family, Backend: iptables.Legacy}
	if h.Tool.Backend == iptables.Legacy {
		other.Backend = iptables.NFT
	}
	if h.Ledger.Look(Mark).Facts[placeOf(other)] == "" || !iptables.InUse(other.Family, other.Backend) {
		return tool, false
	}
	tool, err := iptables.Open(ctx, other.Family, other.Backend)
	return tool, err == nil // without the programs of a backend nothing can be removed
}

// Doubt makes the next Ensure check the object.
func (h *Hold) Doubt() {
	if h != nil {
		h.looked = time.Time{}
	}
}

// Doubted reports whether a check of an object that this dataplane holds is due.
func (h *Hold) Doubted() bool { return h != nil && h.held && time.Since(h.looked) > lookEvery }

// Mend checks the object if that is due, and repairs it.
func (h *Hold) Mend(ctx context.Context) ([]string, error) {
	if !h.Doubted() {
		return nil, nil
	}
	h.Doubt()
	return h.Ensure(ctx, h.wanted)
}

// Forget records that this dataplane does not hold the object, until the next Ensure.
func (h *Hold) Forget() {
	if h != nil {
		h.held = false
	}
}

// Facts in the ledger about the object: the bit of its mark, and for each place whether we created it there.
const (
	factBit = "bit"
	made    = "made"  // the object did not exist, or was kube-proxy's, whose place we took: it may be removed
	found   = "found" // the object existed before: it stays
)

// Chains that show the presence of other programs: kube-proxy and kubelets have a canary each. An old kubelet,
// which creates the object too, also has rules in KUBE-MARK-DROP.
var (
	proxyCanary   = iptables.ID{Table: table, Chain: "KUBE-PROXY-CANARY"}
	kubeletCanary = iptables.ID{Table: table, Chain: "KUBE-KUBELET-CANARY"}
	markDrop      = iptables.ID{Table: table, Chain: "KUBE-MARK-DROP"}
)

// origin returns the fact about an object of which the ledger knows nothing.
func origin(t iptables.Tables) string {
	_, marks := t[mark]
	_, masquerades := t[postrouting]
	_, proxied := t[proxyCanary]
	proxied = proxied || slices.ContainsFunc(t[postrouting], usesKubeProxySet) // in ipvs mode kube-proxy has no canary
	if !marks && !masquerades || proxied && !hasKubelet(t) {
		return made
	}
	return found
}

// usesKubeProxySet reports whether a rule matches one of kube-proxy's sets.
func usesKubeProxySet(r iptables.Rule) bool { return strings.Contains(string(r), "--match-set KUBE-") }

// hasKubelet reports whether a kubelet that creates the object is present.
func hasKubelet(t iptables.Tables) bool {
	_, canary := t[kubeletCanary]
	return canary && len(t[markDrop]) > 0
}

// ownJumps returns the listed jumps to the object that exist.
func (o *object) ownJumps(t iptables.Tables) []iptables.Jump {
	var all []iptables.Jump
	for _, r := range t[o.jump.At] {
		if j := (iptables.Jump{At: o.jump.At, Rule: r}); r.Target() == o.jump.Rule.Target() && j.Listed() {
			all = append(all, j)
		}
	}
	return all
}
