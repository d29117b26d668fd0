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

// A Hold is one dataplane's hold on the object in one place. Its methods are called by one
// goroutine at a time. Those of a nil Hold do nothing: nothing leads to the object.
type Hold struct {
	Ledger *ledger.Ledger
	Holder string // the dataplane's name
	Tool   iptables.Tool

	of     *object   // nil: what all dataplanes share
	held   bool      // it was written, or seen to be right, in this life
	wanted uint8     // the bit that the host said last
	bit    uint8     // the bit that the object has
	looked time.Time // when it was seen to be right; zero: it may have changed since
	seen   seen      // what its dataplane has read
	unsure string    // why it is not known whether the jump is there
}

// Unsure returns why it is not known whether the jump to the object is there; empty: it is known.
func (h *Hold) Unsure() string { return h.unsure }

// A seen is what was read of nat, for as long as fresh says that no process wrote since.
type seen struct {
	tables iptables.Tables // of the object's chains, and of that with the jump; nil: nothing was read
	fresh  func() bool
}

// object returns the chains that h holds.
func (h *Hold) object() *object {
	if h.of == nil {
		return marking
	}
	return h.of
}

// lookEvery is after how long the object is looked at, whatever seems to be the case.
const lookEvery = time.Minute

// timeout is for how long the lock is waited for.
const timeout = 20 * time.Second

// Ensure makes the object say what it should, in the ledger's lock, and says which steps that
// took. It does nothing if that was done, and nothing happened since. bit is the mark's, as
// the host says it; where the host says nothing new, the one that the ledger has holds, for
// another dataplane may have been told later.
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

// Saw hands h the tables that its dataplane has just read, and what says whether they are still
// those of the kernel: then Ensure need not read them again, which takes three programs.
func (h *Hold) Saw(t iptables.Tables, fresh func() bool) {
	if h == nil {
		return
	}
	h.seen = seen{}
	if _, read := t[jump.At]; !read {
		return // with no chain of the dataplane in it nat is not read
	}
	h.seen = seen{tables: make(iptables.Tables), fresh: fresh}
	for _, id := range []iptables.ID{mark, postrouting, jump.At} {
		if rules, there := t[id]; there {
			h.seen.tables[id] = slices.Clone(rules)
		}
	}
}

// look returns what there is of the object: as it was seen, where that is how it is.
func (h *Hold) look(ctx context.Context, tool iptables.Tool) (iptables.Tables, error) {
	was := h.seen
	h.seen = seen{}
	if was.tables != nil && was.fresh() {
		return was.tables, nil
	}
	o := h.object()
	return read(ctx, tool, append(o.ids(), o.jump.At)...)
}

// write notes which dataplane holds the object, and then writes what it lacks.
func (h *Hold) write(ctx context.Context, share *ledger.Share) ([]string, error) {
	tool, where := h.Tool, place(h.Tool)
	tool.Hold = share.File()
	found, err := h.look(ctx, tool)
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
		share.Facts[where] = maker(others)
	}
	share.Facts[factBit] = strconv.Itoa(int(h.bit))
	share.Add(h.Holder)
	if err := share.Save(); err != nil {
		return nil, err
	}
	h.unsure = found.Unsure(h.object().jump.At)
	b := h.object().lacking(found, h.bit)
	if b.Empty() {
		return nil, nil
	}
	s := new(iptables.Script)
	b.Write(s, tool.Backend)
	return b.Steps(), tool.Restore(ctx, s)
}

// Elsewhere returns the tool of the backend that h does not write to, where the ledger says that a
// dataplane wrote the object there.
func (h *Hold) Elsewhere(ctx context.Context) (tool iptables.Tool, there bool) {
	if h == nil || h.Tool.Kernel != nil {
		return tool, false
	}
	other := iptables.Tool{Family: h.Tool.Family, Backend: iptables.Legacy}
	if h.Tool.Backend == iptables.Legacy {
		other.Backend = iptables.NFT
	}
	if h.Ledger.Look(Mark).Facts[place(other)] == "" || !iptables.InUse(other.Family, other.Backend) {
		return tool, false
	}
	tool, err := iptables.Open(ctx, other.Family, other.Backend)
	return tool, err == nil // without its programs nothing can be removed
}

// Doubt has the next Ensure look at the object.
func (h *Hold) Doubt() {
	if h != nil {
		h.looked = time.Time{}
	}
}

// Doubted reports whether it is time to look at an object that this dataplane holds.
func (h *Hold) Doubted() bool { return h != nil && h.held && time.Since(h.looked) > lookEvery }

// Mend looks at the object if that is due, and puts back what it lacks.
func (h *Hold) Mend(ctx context.Context) ([]string, error) {
	if !h.Doubted() {
		return nil, nil
	}
	h.Doubt()
	return h.Ensure(ctx, h.wanted)
}

// Forget has the object be held by others, until the next Ensure.
func (h *Hold) Forget() {
	if h != nil {
		h.held = false
	}
}

// The facts that the ledger has of the object: the bit of its mark, and, by the name of each
// place, whether we made it there.
const (
	factBit = "bit"
	made    = "made"  // there was none, or kube-proxy's, whose place we took: it may be removed
	found   = "found" // there was one: it stays
)

// Chains by which others show that they are, or were, there: kube-proxy has a canary, and so
// has a kubelet. An old kubelet, which makes the object too, also has rules in KUBE-MARK-DROP.
var (
	proxyCanary   = iptables.ID{Table: table, Chain: "KUBE-PROXY-CANARY"}
	kubeletCanary = iptables.ID{Table: table, Chain: "KUBE-KUBELET-CANARY"}
	markDrop      = iptables.ID{Table: table, Chain: "KUBE-MARK-DROP"}
)

// maker is the fact about an object that the ledger knows nothing of.
func maker(t iptables.Tables) string {
	_, marks := t[mark]
	_, masquerades := t[postrouting]
	_, proxied := t[proxyCanary]
	proxied = proxied || slices.ContainsFunc(t[postrouting], ofSet) // in ipvs mode it has no canary
	if !marks && !masquerades || proxied && !byKubelet(t) {
		return made
	}
	return found
}

// ofSet reports whether a rule speaks of one of kube-proxy's sets.
func ofSet(r iptables.Rule) bool { return strings.Contains(string(r), "--match-set KUBE-") }

// byKubelet reports whether a kubelet is there that makes the object.
func byKubelet(t iptables.Tables) bool {
	_, canary := t[kubeletCanary]
	return canary && len(t[markDrop]) > 0
}

// ownJumps are the listed jumps to the object that are there.
func (o *object) ownJumps(t iptables.Tables) []iptables.Jump {
	var all []iptables.Jump
	for _, r := range t[o.jump.At] {
		if j := (iptables.Jump{At: o.jump.At, Rule: r}); r.Target() == o.jump.Rule.Target() && j.Listed() {
			all = append(all, j)
		}
	}
	return all
}
