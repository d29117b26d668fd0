// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A Family implements frame.Family for one IP family by a Reconciler, except for Want. A mode
// embeds it, adds Want and the methods of Mode, and overrides the methods for which its kernel has
// more to do, for example Node to read the addresses of the node.
type Family[P Piece[P], K, V comparable] struct {
	*Reconciler[P, K, V]
	Of sdk.Family

	// NodePorts returns a function that reports whether an address takes node ports now. It
	// decides which flows end when a Service is removed.
	NodePorts func() (func(netip.Addr) bool, error)

	draining flows.Draining
}

// NewFamily returns the Family of a mode and a kernel.
func NewFamily[P Piece[P], K, V comparable](of sdk.Family, mode Mode[P, K, V], kernel Kernel[K, V]) Family[P, K, V] {
	return Family[P, K, V]{Reconciler: New(mode, kernel), Of: of}
}

// Serves reports whether of is the IP family of f.
func (f *Family[P, K, V]) Serves(of sdk.Family) bool { return of == f.Of }

// Hold does nothing: no other program writes for the kernel.
func (f *Family[P, K, V]) Hold(*ledger.Lock) {}

// Adopt lists the kernel.
func (f *Family[P, K, V]) Adopt(ctx context.Context, _ frame.Parts) (sdk.Role, error) {
	return f.List(ctx)
}

// Ours reports whether the kernel has entries.
func (f *Family[P, K, V]) Ours() bool { return len(f.listed)+len(f.fixed)+len(f.installed) > 0 }

// Node makes the next plan compare the fixed entries.
func (f *Family[P, K, V]) Node(sdk.Node) error {
	f.Refix()
	return nil
}

// Role sets the role for which fixed entries are planned.
func (f *Family[P, K, V]) Role(role sdk.Role) error {
	f.SetRole(role)
	return nil
}

// Plan returns the difference between the installed and the desired entries.
func (f *Family[P, K, V]) Plan() frame.Plan { return f.Reconciler.Plan() }

// Probe asks the kernel whether other programs have changed entries.
func (f *Family[P, K, V]) Probe(ctx context.Context) frame.Finding {
	return Found(f.kernel.Foreign(ctx))
}

// Found converts the result of Kernel.Foreign to a frame.Finding in which everything is lost.
func Found(why string, unsure bool) frame.Finding {
	if why == "" {
		return frame.Finding{Unsure: unsure}
	}
	return frame.Finding{Lost: frame.All, Why: why, Unsure: unsure}
}

// Masquerade returns nil: no entry leads to the chains that all dataplanes share.
func (f *Family[P, K, V]) Masquerade() *masquerade.Hold { return nil }

// Tell adds nothing.
func (f *Family[P, K, V]) Tell(*sdk.Report) {}

// Flows counts the remaining connections of those that were established when draining began, by
// the kernel's connection tracking.
func (f *Family[P, K, V]) Flows(services map[sdk.Name]sdk.Service, fresh bool) (int, error) {
	return f.draining.Count(f.Of, services, fresh)
}

// Forget deletes the UDP flows to these Services whose endpoint does not serve.
func (f *Family[P, K, V]) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	takes, err := f.NodePorts()
	if err != nil {
		return 0, err
	}
	return conntrack.Forget(of, conntrack.Serving(of, services, takes).Telling(step))
}

// ForgetEarly deletes connections to these Services that began before the Services existed.
func (f *Family[P, K, V]) ForgetEarly(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	takes, err := f.NodePorts()
	if err != nil {
		return 0, err
	}
	return conntrack.ForgetEarly(of, services, takes, step)
}
