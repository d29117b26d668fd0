// SPDX-License-Identifier: Apache-2.0

package masquerade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// Leave ends what holder holds, wherever one of tools writes, and names what goes and what
// stays, and why. A dry run only names it. removed reports which chains holder takes out now:
// their rules keep nothing. It comes once those are gone.
//
// Only the last holder removes the object. Where the ledger knows nothing of it, it stays,
// unless what kube-proxy left is to go.
func Leave(ctx context.Context, dir, holder string, tools []iptables.Tool, l sdk.Leftovers, removed func(iptables.ID) bool) (gone []string, err error) {
	return marking.leave(ctx, dir, holder, tools, l, removed, false)
}

// leave is Leave, or with move Move.
func (o *object) leave(ctx context.Context, dir, holder string, tools []iptables.Tool, l sdk.Leftovers, removed func(iptables.ID) bool, move bool) (gone []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	shared, err := ledger.Open(dir)
	if err != nil {
		return nil, err
	}
	share := shared.Look(o.name)
	if !l.DryRun {
		if share, err = shared.Share(ctx, o.name); err != nil {
			return nil, fmt.Errorf("let go of %s: %w", o.name, err)
		}
		defer func() { err = errors.Join(err, share.Close()) }()
	}
	if move && !slices.Equal(share.Holders, []string{holder}) {
		return nil, nil // the last of them removes it
	}
	held := move || share.Remove(holder)
	var errs []error
	if move || len(share.Holders) == 0 {
		for _, tool := range tools {
			if !held && share.Facts[place(tool)] != made && !l.KubeProxy && o == marking {
				continue
			}
			if !l.DryRun {
				tool.Hold = share.File()
			}
			v := leaver{object: o, tool: tool, place: place(tool), share: share, held: held, leftovers: l, removed: removed}
			steps, err := v.leave(ctx)
			gone = append(gone, steps...)
			errs = append(errs, err)
		}
	}
	if l.DryRun {
		return gone, errors.Join(errs...)
	}
	if len(share.Holders) == 0 && len(share.Facts) == 1 {
		delete(share.Facts, factBit) // there is no object left
	}
	return gone, errors.Join(append(errs, share.Save())...)
}

// Move ends what holder holds where tools write, while it holds the object elsewhere, and names
// what goes and what stays, and why. It goes if there is no other holder.
func Move(ctx context.Context, dir, holder string, tools []iptables.Tool, removed func(iptables.ID) bool) (gone []string, err error) {
	return marking.leave(ctx, dir, holder, tools, sdk.Leftovers{}, removed, true)
}

// A leaver is the last holder's, or that of a Cleanup of what kube-proxy left, in one
// place.
type leaver struct {
	*object
	tool      iptables.Tool
	place     string
	share     *ledger.Share
	held      bool
	leftovers sdk.Leftovers
	removed   func(iptables.ID) bool
}

// leave removes the object in one place, or says why it stays.
func (v leaver) leave(ctx context.Context) ([]string, error) {
	t, err := v.tool.SaveIf(ctx, v.has, v.jump.At.Table)
	if err != nil {
		return nil, err
	}
	if len(t) == 0 { // nowhere is a chain of the object
		delete(v.share.Facts, v.place)
		return nil, nil
	}
	why, foreign := v.stays(t)
	b := v.keep(t)
	if why == "" {
		b = v.removal(t)
	}
	steps := b.Steps()
	if why != "" && (v.held || foreign && v.leftovers.KubeProxy) {
		var names []string
		for _, id := range v.ids() {
			names = append(names, id.Chain)
		}
		steps = append(steps, fmt.Sprintf("keep %s %s: %s", v.jump.At.Table, strings.Join(names, " and "), why))
	}
	for i, s := range steps {
		steps[i] = v.place + ": " + s
	}
	if v.leftovers.DryRun {
		return steps, nil
	}
	if why == "" {
		delete(v.share.Facts, v.place)
	} else if v.share.Facts[v.place] == "" && byKubelet(t) {
		v.share.Facts[v.place] = found
	}
	if b.Empty() {
		return steps, nil
	}
	s := new(iptables.Script)
	b.Write(s, v.tool.Backend)
	return steps, v.tool.Restore(ctx, s)
}

// stays says why the object does, and whether for a foreign rule; empty: it is removed.
func (v leaver) stays(t iptables.Tables) (why string, foreign bool) {
	fact := v.share.Facts[v.place]
	if fact == found {
		return "they were there before us", false
	}
	if byKubelet(t) {
		return "a kubelet made them", false
	}
	if _, whole := t[iptables.ID{Table: v.jump.At.Table, Chain: v.jump.Rule.Target()}]; fact == "" && !whole {
		return "kube-proxy would have made both", false
	}
	if why := t.Unsure(v.jump.At); why != "" {
		return why, false
	}
	held := t.Held(func(id iptables.ID) bool { return v.has(id) || v.removed(id) })
	for _, id := range v.ids() {
		if from, is := held[id]; is {
			return fmt.Sprintf("a rule of %s leads to %s", from.Chain, id.Chain), true
		}
	}
	return "", false
}

// removal is the block that removes the object.
func (o *object) removal(t iptables.Tables) iptables.Block {
	b := iptables.Block{Table: o.jump.At.Table, Delete: o.ownJumps(t)}
	for _, id := range o.ids() {
		if _, there := t[id]; there {
			b.Remove = append(b.Remove, id)
		}
	}
	return b
}

// keep is the block after which an object that stays speaks of none of the sets that
// kube-proxy left and that go.
func (v leaver) keep(t iptables.Tables) iptables.Block {
	b := iptables.Block{Table: table}
	if rules := t[postrouting]; v.leftovers.KubeProxy && slices.ContainsFunc(rules, ofSet) {
		b.Whole = []iptables.Chain{{ID: postrouting, Rules: slices.DeleteFunc(slices.Clone(rules), ofSet)}}
	}
	return b
}
