// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A deed is one thing that Cleanup does, and what goes by it.
type deed struct {
	what string
	do   func() error
}

// deeds are what sweepers come to. Established connections need their virtual server
// and the address until the last moment, and without the rules that masquerade them
// they would be answered by strangers: so it is servers, addresses, rules, and then
// (setDeeds) the sets that rules speak of.
func deeds(ctx context.Context, k kernel, all []*sweeper) []deed {
	w := writer{side: &side{kernel: k}}
	var list []deed
	add := func(what string, do func() error) { list = append(list, deed{what, do}) }
	for _, s := range all {
		for _, step := range s.servers {
			add(strings.TrimPrefix(step.String(), "remove "), func() error { return w.onServer(step) })
		}
	}
	if n := all[0].device; n >= 0 {
		add(fmt.Sprintf("device %s with %d addresses", device, n), k.RemoveDevice)
	} else {
		for _, s := range all {
			for _, step := range s.addrs {
				add("address "+step.addr.String(), func() error { return w.onDevice(step) })
			}
		}
	}
	for _, s := range all {
		for i, ruler := range s.rulers {
			p := s.rules[i]
			what := strings.Join(slices.Concat(p.Steps(), s.kept[i]), "; ")
			add(ruler.String()+": "+what, func() error { return ruler.Restore(ctx, p.Script(ruler.place().Backend)) })
		}
	}
	return list
}

// setDeeds are those about sets.
func setDeeds(ctx context.Context, k kernel, all []*sweeper) []deed {
	var list []deed
	add := func(what string, do func() error) { list = append(list, deed{what, do}) }
	for _, s := range all {
		if len(s.sets) > 0 {
			add("sets "+strings.Join(s.sets, " "), func() error {
				return k.Restore(ctx, "destroy "+strings.Join(s.sets, "\ndestroy ")+"\n")
			})
		}
	}
	return list
}

// sweep does all it can, and names what went; a dry run only names it.
func sweep(list []deed, dry bool) ([]string, error) {
	var gone []string
	var errs []error
	for _, d := range list {
		if !dry {
			if err := d.do(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", d.what, err))
				continue
			}
		}
		gone = append(gone, d.what)
	}
	return gone, errors.Join(errs...)
}
