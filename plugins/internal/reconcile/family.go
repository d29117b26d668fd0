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

// A Family is a frame.Family whose entries a Reconciler keeps in the kernel. A mode embeds one and adds Want, which
// renders a Service, and the four methods of Mode. All other methods of a frame.Family are here. A mode overrides those
// for which its kernel has more to do, for example to read the addresses of the node.
type Family[P Piece[P], K, V comparable] struct {
	*Reconciler[P, K, V]
	Of sdk.Family

	// NodePorts returns which addresses take node ports now. The flows of these end when a Service is removed.
	NodePorts func() (func(netip.Addr) bool, error)

	draining flows.Draining
}

// NewFamily returns the Family of a mode and a kernel.
func NewFamily[P Piece[P], K, V comparable](of sdk.Family, mode Mode[P, K, V], kernel Kernel[K, V]) Family[P, K, V] {
	return Family[P, K, V]{Reconciler: New(mode, kernel), Of: of}
}

// Serves reports whether Services of an IP family are this Family's.
func (f *Family[P, K, V]) Serves(of sdk.Family) bool { return of == f.Of }

// Hold does nothing: nothing that writes needs to have the lock.
func (f *Family[P, K, V]) Hold(*ledger.Lock) {}

// Adopt lists the kernel.
func (f *Family[P, K, V]) Adopt(ctx context.Context, _ frame.Parts) (sdk.Role, error) {
	return f.List(ctx)
}

// Ours reports whether the kernel has entries.
func (f *Family[P, K, V]) Ours() bool { return !f.isEmpty() }

// Node has the fixed entries compared by the next plan.
func (f *Family[P, K, V]) Node(sdk.Node) error {
	f.Refix()
	return nil
}

// Role sets the role for which fixed entries are planned.
func (f *Family[P, K, V]) Role(role sdk.Role) error {
	f.SetRole(role)
	return nil
}

// Plan returns what leads from the installed to the desired entries.
func (f *Family[P, K, V]) Plan() frame.Plan { return f.Reconciler.Plan() }

// Probe asks the kernel whether other programs have changed entries.
func (f *Family[P, K, V]) Probe(ctx context.Context) frame.Finding {
	return Found(f.kernel.Foreign(ctx))
}

// Found returns what Kernel.Foreign found as a frame.Finding, in which everything is lost.
func Found(why string, unsure bool) frame.Finding {
	if why == "" {
		return frame.Finding{Unsure: unsure}
	}
	return frame.Finding{Lost: frame.All, Why: why, Unsure: unsure}
}

// Masquerade returns nil: the entries lead to nothing that all dataplanes share.
func (f *Family[P, K, V]) Masquerade() *masquerade.Hold { return nil }

// Tell adds nothing.
func (f *Family[P, K, V]) Tell(*sdk.Report) {}

// Flows counts the connections that were established when draining began and are left, by the connection tracking of the
// kernel.
func (f *Family[P, K, V]) Flows(services map[sdk.Name]sdk.Service, fresh bool) (int, error) {
	return f.draining.Count(f.Of, services, fresh)
}

// Forget ends UDP flows to these Services that lead nowhere.
func (f *Family[P, K, V]) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	takes, err := f.NodePorts()
	if err != nil {
		return 0, err
	}
	return conntrack.Forget(of, conntrack.Serving(of, services, takes).Telling(step))
}

// ForgetEarly deletes connections to these Services that began before they were there.
func (f *Family[P, K, V]) ForgetEarly(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	takes, err := f.NodePorts()
	if err != nil {
		return 0, err
	}
	return conntrack.ForgetEarly(of, services, takes, step)
}
