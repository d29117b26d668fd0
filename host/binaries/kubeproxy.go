// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/config"
)

// Leftovers describes what kube-proxy would leave on a node where a mode replaces it.
type Leftovers struct {
	Taken     []string // what the mode takes over
	Removable []string // what the plugins of other modes would remove, without Taken; empty if not known
	Kept      []string // what they would keep because rules of other programs refer to it; empty if not known
	Unknown   []string // the plugins for which this is not known, and why
}

// LeftOfKubeProxy returns what kube-proxy would leave on this node if mode replaced it. It
// changes nothing.
func LeftOfKubeProxy(ctx context.Context, h *config.Host, mode string) (l Leftovers) {
	var taken []string
	known := true
	for _, f := range Discover(h) {
		if f.Err != nil {
			continue
		}
		flags := []string{"--kube-proxy"}
		if f.Name == mode && mode != "ipvs" { // ipvs takes over and removes everything of kube-proxy's ipvs mode
			flags = nil
		}
		ctx, cancel := context.WithTimeout(ctx, verbLimit)
		items, err := WouldRemove(ctx, f.Path, h.Plugins[f.Name].SHA256, flags...)
		cancel()
		switch {
		case err != nil && f.Name == mode:
			known = false
			l.Unknown = append(l.Unknown, fmt.Sprintf("%s did not say what it would take over from kube-proxy, so the leftovers are not known: %v", mode, err))
		case err != nil:
			l.Unknown = append(l.Unknown, fmt.Sprintf("%s did not say what it would clean up of kube-proxy: %v", f.Name, err))
		case f.Name == mode:
			taken = items
		default:
			l.Removable = append(l.Removable, items...)
		}
	}
	if !known {
		return Leftovers{Unknown: l.Unknown}
	}
	l.Taken = taken
	l.classify(taken)
	return l
}

// classify splits what the plugins of other modes named into Removable and Kept. taken is what
// the mode takes over.
func (l *Leftovers) classify(taken []string) {
	slices.Sort(l.Removable)
	l.Removable = slices.Compact(l.Removable)
	removed := slices.Concat(l.Removable, taken)
	for _, item := range l.Removable {
		if IsKept(item) && !isKeptBy(item, removed) {
			l.Kept = append(l.Kept, item)
		}
	}
	l.Removable = slices.DeleteFunc(l.Removable, func(item string) bool {
		return IsKept(item) || slices.Contains(taken, item) || isShared(item)
	})
}

// IsKept reports whether an item of a cleanup is kept: "iptables-nft: keep …".
func IsKept(item string) bool { return strings.Contains(item, ": keep ") }

// isKeptBy reports whether an item is kept only because of a rule in a chain that another
// plugin, or the mode that takes over, removes.
func isKeptBy(item string, removed []string) bool {
	_, chain, _ := strings.Cut(item, "a rule of ")
	chain, _, leads := strings.Cut(chain, " leads to ")
	return leads && slices.ContainsFunc(removed, func(other string) bool { return strings.HasSuffix(other, "remove nat "+chain) })
}

// isShared reports whether an item belongs to KUBE-MARK-MASQ or KUBE-POSTROUTING, which every
// mode keeps.
func isShared(item string) bool {
	return strings.Contains(item, "KUBE-MARK-MASQ") || strings.Contains(item, "KUBE-POSTROUTING")
}
