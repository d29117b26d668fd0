// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/config"
)

// LeftOfKubeProxy returns what kube-proxy would leave on this node where mode serves in its place:
// what the other plugins would remove of it, but for what mode takes over. It only asks. Of
// which plugins it is not known is unknown.
func LeftOfKubeProxy(ctx context.Context, h *config.Host, mode string) (left, unknown []string) {
	var taken []string
	for _, f := range Discover(h) {
		if f.Err != nil {
			continue
		}
		flags := []string{"--kube-proxy"}
		if f.Name == mode {
			flags = nil
		}
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		items, err := wouldRemove(ctx, f.Path, h.Plugins[f.Name].SHA256, flags...)
		cancel()
		switch {
		case err != nil:
			unknown = append(unknown, fmt.Sprintf("what %s would clean up of kube-proxy is not known: %v", f.Name, err))
		case f.Name == mode:
			taken = items
		default:
			left = append(left, items...)
		}
	}
	slices.Sort(left)
	return slices.DeleteFunc(slices.Compact(left), func(item string) bool {
		return slices.Contains(taken, item) || isShared(item)
	}), unknown
}

// isShared reports whether an item is of KUBE-MARK-MASQ, which every mode keeps.
func isShared(item string) bool {
	return strings.Contains(item, "KUBE-MARK-MASQ") || strings.Contains(item, "KUBE-POSTROUTING")
}
