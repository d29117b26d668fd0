// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// mode is the plugin's name, and that under which it holds locks and settings.
const mode = "userspace"

// rules are what leads callers to the portals: those of each family, and the right to write
// them into the kernel. They are guarded as the Dataplane is.
type rules struct {
	status  *status
	claim   *duty.Claim
	ledger  *ledger.Ledger
	lock    *ledger.Lock // nil: another process is the writer, or we have yielded
	cleaned duty.Cleaned
	sides   []*side
	monitor *ruleset.Monitor // nil: the backend tells nothing
	audited time.Time        // when the last part of an audit was
}

// openRules finds the programs of each family that this node has, and whether we
// may use them. It changes nothing.
func openRules(ctx context.Context, st *status, claim *duty.Claim, dir string, backend string) (*rules, error) {
	book, err := ledger.Open(dir)
	if err != nil {
		return nil, err
	}
	use := iptables.Backend(backend)
	if backend == backendAuto {
		found, err := iptables.Look(ctx, sdk.IPv4)
		if err != nil {
			return nil, err
		}
		use = found.Choose()
	}
	all := &rules{status: st, claim: claim, ledger: book, cleaned: duty.CleanedIn(dir, mode), audited: time.Now()}
	all.listen(use)
	var errs []error
	for _, family := range families {
		tool, err := iptables.Open(ctx, family, use)
		if err == nil {
			err = tool.Reach()
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		tool.Started, tool.Ended = all.monitor.Started, all.monitor.Ended
		tool.Heard = st.step
		tool.Waiting = func(what string) { st.waiting.Store(&what) }
		side := newSide(tool)
		side.Masquerade = &masquerade.Hold{Book: book, Holder: mode, Place: masquerade.At(tool)}
		all.sides = append(all.sides, side)
	}
	if len(all.sides) == 0 {
		all.monitor.Close()
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// has reports whether family is served.
func (r *rules) has(f sdk.Family) bool {
	return slices.ContainsFunc(r.sides, func(s *side) bool { return s.Family() == f })
}

// of are those of family; nil: it is not served.
func (r *rules) of(f sdk.Family) *side {
	for _, s := range r.sides {
		if s.Family() == f {
			return s
		}
	}
	return nil
}

// tryLock takes the right to write, if nobody else has it.
func (r *rules) tryLock() error {
	if r.lock != nil {
		return nil
	}
	lock, err := r.claim.Lock(r.ledger)
	if lock == nil {
		return err
	}
	r.lock = lock
	for _, s := range r.sides {
		s.Hold(lock.File())
	}
	return r.cleaned.Remove()
}

// unlock gives up the right to write.
func (r *rules) unlock() error {
	r.claim.Forget()
	if r.lock == nil {
		return nil
	}
	lock := r.lock
	r.lock = nil
	for _, s := range r.sides {
		s.Hold(nil) // the next writer goes on
	}
	return lock.Unlock()
}

// shown is the role that the kernel shows.
func (r *rules) shown(ctx context.Context) (sdk.Role, error) {
	role := sdk.Standby
	for _, s := range r.sides {
		if err := s.Read(ctx); err != nil {
			return 0, err
		}
		if s.shown() == sdk.Active {
			role = sdk.Active
		}
	}
	return role, nil
}

// askPatience finds out whether the kernel and the programs can tell whether a socket
// is there.
func (r *rules) askPatience(ctx context.Context) {
	for _, s := range r.sides {
		probe := new(iptables.Script)
		probe.Begin("filter")
		probe.Chain(ownSocket.Chain, []iptables.Rule{hasSocket})
		probe.Commit()
		err := s.Tool.Test(ctx, probe)
		s.node.patient = err == nil
		if err != nil {
			r.status.log.Load().Info("who calls while the relay is started anew will be refused", "family", s.Family(), "why", err)
		}
	}
}

// write makes the kernel have what is desired, in role. Without the right to, it
// returns what it would do.
func (r *rules) write(ctx context.Context, role sdk.Role) (steps []string, err error) {
	for _, s := range r.sides {
		if r.lock != nil {
			if err := s.write(ctx, role); err != nil {
				return nil, err
			}
			r.status.step()
			continue
		}
		s.lead(role)
		steps = append(steps, s.Plan().Steps()...)
	}
	return steps, nil
}

// write carries out what is planned for role. A line that is not taken may lack what another
// process removed: then it is tried once more from a fresh reading.
func (s *side) write(ctx context.Context, role sdk.Role) error {
	s.lead(role)
	again := s.Known()
	_, refused, err := s.Attempt(ctx)
	if refused != nil && again {
		_, refused, err = s.Attempt(ctx)
	}
	if refused != nil {
		err = refused
	}
	if err != nil {
		return fmt.Errorf("write %s rules: %w", s.Family(), err)
	}
	return nil
}

// close ends hearing, and the right to write.
func (r *rules) close() error {
	r.monitor.Close()
	return r.unlock()
}

// mayUse reports whether this process might write rules at all.
func mayUse() bool { return os.Geteuid() == 0 }
