// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"
)

// Release ends that this process wants these addresses. What is ours, and no other process that
// lives wants, is removed.
func (h *Holding) Release(ctx context.Context, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	_, err := h.drop(ctx, addrs, false)
	return err
}

// Strays removes what processes that have ended left of a family, and what
// this one no longer wants. It costs as much as there are notes.
func (h *Holding) Strays(ctx context.Context, family func(netip.Addr) bool) ([]string, error) {
	noted, err := h.notes.all()
	if err != nil {
		return nil, err
	}
	noted = slices.DeleteFunc(noted, func(addr netip.Addr) bool { return !family(addr) || h.Has(addr) })
	gone, err := h.drop(ctx, noted, false)
	return gone, errors.Join(err, h.prune(ctx))
}

// Sweep removes, or with dry only names, everything that is noted, but for what another process
// that lives wants.
func (h *Holding) Sweep(ctx context.Context, dry bool) ([]string, error) {
	noted, err := h.notes.all()
	if err != nil {
		return nil, err
	}
	gone, err := h.drop(ctx, noted, dry)
	if !dry {
		err = errors.Join(err, h.prune(ctx))
	}
	return gone, err
}

// prune removes what processes that were killed left in the folder beside notes.
func (h *Holding) prune(ctx context.Context) error {
	if _, err := os.Stat(h.notes.dir); err != nil {
		return nil // there is nothing
	}
	unlock, err := h.notes.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	h.notes.prune()
	return nil
}

// drop is what follows from this process not wanting these addresses, in order, and names those
// that are removed.
func (h *Holding) drop(ctx context.Context, addrs []netip.Addr, dry bool) (gone []string, err error) {
	if _, err := os.Stat(h.notes.dir); len(addrs) == 0 || errors.Is(err, fs.ErrNotExist) {
		h.unlearn(addrs, dry)
		return nil, nil // nothing was ever noted
	}
	return gone, h.change(ctx, func(there map[netip.Addr]Address, lives func(string) bool) error {
		var errs []error
		for _, addr := range addrs {
			if err := ctx.Err(); err != nil {
				return errors.Join(append(errs, err)...)
			}
			name, err := h.dropOne(addr, pointer(there, addr), lives, dry)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if name != "" {
				gone = append(gone, name)
			}
			h.unlearn([]netip.Addr{addr}, dry)
		}
		return errors.Join(errs...)
	})
}

func (h *Holding) unlearn(addrs []netip.Addr, dry bool) {
	for _, addr := range addrs {
		if !dry {
			delete(h.has, addr)
		}
	}
}

// dropOne is drop of one address. The address is removed before its note.
func (h *Holding) dropOne(addr netip.Addr, there *Address, lives func(string) bool, dry bool) (name string, err error) {
	found := h.notes.read(addr)
	if others := h.notes.wanted(found, h.id, lives); len(others) > 0 {
		if dry || !slices.Contains(found.Holders, h.id) {
			return "", nil
		}
		found.Holders = others
		return "", h.notes.write(addr, *found)
	}
	switch doing := decide(found, there, false); {
	case doing == remove && dry:
		return what(addr, found.Interface), nil
	case doing == remove:
		h.notes.edge()
		if err := h.system.Remove(*there); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", notRemoved(addr, found.Interface, err)
		}
		return what(addr, found.Interface), h.notes.drop(addr)
	case dry:
	case doing == forget, h.notes.has(addr): // the latter is a note that cannot be read
		return "", h.notes.drop(addr)
	}
	return "", nil
}
