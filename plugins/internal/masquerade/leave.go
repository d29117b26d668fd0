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

// Leave ends the hold of holder in all places to which tools write. It returns descriptions of what is removed,
// and of what stays and why. With DryRun it only describes. removed reports which chains holder removes: their
// rules do not keep the object. Call Leave after these chains are removed.
//
// Only the last holder removes the object. An object of which the ledger knows nothing stays, unless
// kube-proxy's leftovers are to be removed.
func Leave(ctx context.Context, dir, holder string, tools []iptables.Tool, l sdk.Leftovers, removed func(iptables.ID) bool) (gone []string, err error) {
	return marking.leave(ctx, dir, holder, tools, l, removed, false)
}

// leave implements Leave, and with move Move.
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
			return nil, fmt.Errorf("release %s: %w", o.name, err)
		}
		defer func() { err = errors.Join(err, share.Close()) }()
	}
	if move && !slices.Equal(share.Holders, []string{holder}) {
		return nil, nil // the last holder removes the object
	}
	held := move || share.Remove(holder)
	var errs []error
	if move || len(share.Holders) == 0 {
		for _, tool := range tools {
			if !held && share.Facts[placeOf(tool)] != made && !l.KubeProxy && o == marking {
				continue
			}
			if !l.DryRun {
				tool.Hold = share.File()
			}
			v := leaver{object: o, tool: tool, place: placeOf(tool), share: share, held: held, leftovers: l, removed: removed}
			steps, err := v.leave(ctx)
			gone = append(gone, steps...)
			errs = append(errs, err)
		}
	}
	if l.DryRun {
		return gone, errors.Join(errs...)
	}
	if len(share.Holders) == 0 && len(share.Facts) == 1 {
		delete(share.Facts, factBit) // no object is left
	}
	return gone, errors.Join(append(errs, share.Save())...)
}

// Move ends the hold of holder where tools write, while it holds the object in another backend. It returns
// descriptions of what is removed, and of what stays and why. It removes the object if there is no other
// holder.
func Move(ctx context.Context, dir, holder string, tools []iptables.Tool, removed func(iptables.ID) bool) (gone []string, err error) {
	return marking.leave(ctx, dir, holder, tools, sdk.Leftovers{}, removed, true)
}

// A leaver removes the object from one place, for the last holder or for a Cleanup of kube-proxy's leftovers.
type leaver struct {
	*object
	tool      iptables.Tool
	place     string
	share     *ledger.Share
	held      bool
	leftovers sdk.Leftovers
	removed   func(iptables.ID) bool
}

// leave removes the object from one place, or says why it stays.
func (v leaver) leave(ctx context.Context) ([]string, error) {
	t, err := v.tool.SaveIf(ctx, v.has, v.jump.At.Table)
	if err != nil {
		return nil, err
	}
	if len(t) == 0 { // no chain of the object exists
		delete(v.share.Facts, v.place)
		return nil, nil
	}
	why, foreign := v.whyKept(t)
	b := v.withoutKubeProxySets(t)
	if why == "" {
		b = v.removalBlock(t)
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
	} else if v.share.Facts[v.place] == "" && hasKubelet(t) {
		v.share.Facts[v.place] = found
	}
	if b.Empty() {
		return steps, nil
	}
	s := new(iptables.Script)
	b.Write(s, v.tool.Backend)
	return steps, v.tool.Restore(ctx, s)
}

// whyKept returns why the object stays, and whether that is because of a foreign rule. "" means that it is
// removed.
func (v leaver) whyKept(t iptables.Tables) (why string, foreign bool) {
	fact := v.share.Facts[v.place]
	if fact == found {
		return "they were there before us", false
	}
	if hasKubelet(t) {
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

// removalBlock returns the block that removes the object.
func (o *object) removalBlock(t iptables.Tables) iptables.Block {
	b := iptables.Block{Table: o.jump.At.Table, Delete: o.ownJumps(t)}
	for _, id := range o.ids() {
		if _, there := t[id]; there {
			b.Remove = append(b.Remove, id)
		}
	}
	return b
}

// withoutKubeProxySets returns the block that deletes rules with kube-proxy's sets, which are removed, from an object that
// stays.
func (v leaver) withoutKubeProxySets(t iptables.Tables) iptables.Block {
	b := iptables.Block{Table: table}
	if rules := t[postrouting]; v.leftovers.KubeProxy && slices.ContainsFunc(rules, usesKubeProxySet) {
		b.Whole = []iptables.Chain{{ID: postrouting, Rules: slices.DeleteFunc(slices.Clone(rules), usesKubeProxySet)}}
	}
	return b
}
