// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A machine is what this process reaches outside of itself. A test has a machine of its own.
type machine struct {
	probe   func(context.Context, options) error // a *sdk.Refusal says what the machine lacks
	release func() string                        // of its kernel

	open  func() (kernel, error)                // all of the kernel
	reach func(context.Context) (kernel, error) // what there is of it: parts may be nil

	rules func(ctx context.Context, backend string, log *slog.Logger) (map[sdk.Family]ruleTool, error) // "auto": as the node does
	ruled func(context.Context, sdk.Family) ([]ruleTool, error)                                        // those that may have rules

	forget      func(sdk.Family, conntrack.Served) (int, error)
	tracked     func(sdk.Family, func(flow)) error // tells what connection tracking knows
	parameters  string                             // the folder of the kernel's parameters
	connections string                             // where IPVS lists them
}

// A ruleTool has the rules of one family, in one backend.
type ruleTool interface {
	Save(ctx context.Context, tables ...string) (iptables.Tables, error) // no names: all
	Restore(context.Context, *iptables.Script) error
	String() string

	// changed reports, at little cost, whether rules may be others than when it was
	// last asked.
	changed() bool

	// place is where they are, for what all dataplanes share.
	place() masquerade.Place

	// hold hands a lock, if not nil, to every program that writes; env is told what such
	// a program waits for, and that it gets on.
	hold(lock *ledger.Lock, env frame.Env)
}

// allowed reports, by a refusal, that this process may not touch the kernel.
func (k kernel) allowed() error {
	_, err := k.Timeouts()
	if errors.Is(err, fs.ErrPermission) {
		return &sdk.Refusal{Why: "the kernel does not let this process change its virtual servers", Try: "run it as root, or with the capability NET_ADMIN"}
	}
	return err
}

// hold hands the lock, if not nil, to every program that writes.
func (k kernel) hold(lock *ledger.Lock) {
	if k.setKeeper == nil {
		return
	}
	if lock == nil {
		k.Hold(nil)
		return
	}
	k.Hold(lock.File())
}

// close lets go of the kernel.
func (k kernel) close() {
	if k.balancer != nil {
		k.balancer.Close()
	}
	if k.linker != nil {
		k.linker.Close()
	}
}
