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
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// mode is the plugin's name, and that under which it holds locks and settings.
const mode = "userspace"

// rules are what leads callers to the portals: a book for each family, and the
// right to write it into the kernel. They are guarded as the Dataplane is.
type rules struct {
	status  *status
	claim   *duty.Claim
	ledger  *ledger.Ledger
	lock    *ledger.Lock // nil: another process is the writer, or we have yielded
	cleaned duty.Cleaned
	sides   []*side
	ear     *ear
	audited time.Time // when everything was read last
}

// A side is one family.
type side struct {
	tool iptables.Tool
	book *book

	// known says that the book has what the kernel has. After an error nobody
	// knows, and the next write reads it first.
	known bool

	sizes [2]iptables.Size // of legacy's tables, after the last write

	masq *masquerade.Hold
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
	if all.ear, err = newEar(use); err != nil {
		st.log.Load().Warn("cannot hear who changes the tables", "err", err)
	}
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
		tool.Started = all.ear.started
		tool.Heard = st.step
		tool.Waiting = func(what string) { st.waiting.Store(&what) }
		hold := &masquerade.Hold{Book: book, Holder: mode, Place: masquerade.At(tool)}
		all.sides = append(all.sides, &side{tool: tool, book: newBook(family), masq: hold})
	}
	if len(all.sides) == 0 {
		all.ear.close()
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// has reports whether family is served.
func (r *rules) has(f sdk.Family) bool {
	return slices.ContainsFunc(r.sides, func(s *side) bool { return s.book.frame.family == f })
}

// bookOf is that of family; nil: it is not served.
func (r *rules) bookOf(f sdk.Family) *book {
	for _, s := range r.sides {
		if s.book.frame.family == f {
			return s.book
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
		s.tool.Hold = lock.File()
		s.known = false
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
		s.tool.Hold = nil
		s.known = false // the next writer goes on
	}
	return lock.Unlock()
}

// shown is the role that the kernel shows.
func (r *rules) shown(ctx context.Context) (sdk.Role, error) {
	role := sdk.Standby
	for _, s := range r.sides {
		if err := s.read(ctx); err != nil {
			return 0, err
		}
		if s.book.shown() == sdk.Active {
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
		err := s.tool.Test(ctx, probe)
		s.book.frame.patient = err == nil
		if err != nil {
			r.status.log.Load().Info("who calls while the relay is started anew will be refused", "family", s.book.frame.family, "why", err)
		}
	}
}

// write makes the kernel say what the books do, in role. Without the right to, it
// returns what it would do.
func (r *rules) write(ctx context.Context, role sdk.Role) (steps []string, err error) {
	for _, s := range r.sides {
		if r.lock != nil {
			if _, err := s.write(ctx, role); err != nil {
				return nil, err
			}
			r.status.step()
			continue
		}
		for _, b := range s.book.plan(s.book.frame.jumps(role)) {
			steps = append(steps, b.Steps()...)
		}
	}
	return steps, nil
}

// read takes the kernel's tables into the book.
func (s *side) read(ctx context.Context) error {
	tables, err := s.tool.SaveIf(ctx, isOurs, "nat", "filter")
	if err != nil {
		return fmt.Errorf("read %s tables: %w", s.book.frame.family, err)
	}
	s.book.adopt(tables)
	s.masq.Doubt()
	s.known = true
	return nil
}

// write carries out the book's plan, and says which steps that took. A line that is
// not taken may lack what somebody else took away: then it is tried once more from
// a fresh reading.
func (s *side) write(ctx context.Context, role sdk.Role) (steps []string, err error) {
	if s.known {
		steps, err = s.attempt(ctx, role)
		if refused := new(iptables.LineError); err == nil || ctx.Err() != nil || !errors.As(err, &refused) {
			return steps, err
		}
	}
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	return s.attempt(ctx, role)
}

// chainsAtOnce is how many chains go into one block. nft takes a time that grows with
// their square; legacy copies the whole table each time, so it takes them all.
func chainsAtOnce(b iptables.Backend) int {
	if b == iptables.NFT {
		return 500
	}
	return 1 << 30
}

func (s *side) attempt(ctx context.Context, role sdk.Role) (steps []string, err error) {
	steps, err = s.masq.Ensure(ctx, s.book.frame.node.MasqueradeBit)
	if err != nil {
		return nil, err
	}
	blocks := cut(s.book.plan(s.book.frame.jumps(role)), chainsAtOnce(s.tool.Backend))
	script := new(iptables.Script)
	for _, b := range blocks {
		s.tool.Heard()
		b.Write(script, s.tool.Backend)
		steps = append(steps, b.Steps()...)
	}
	if err := s.tool.Restore(ctx, script); err != nil {
		s.known = false
		return nil, fmt.Errorf("write %s rules: %w", s.book.frame.family, err)
	}
	s.book.done(blocks)
	clear(s.book.touched)
	s.measure()
	return steps, nil
}

// close ends hearing, and the right to write.
func (r *rules) close() error {
	r.ear.close()
	return r.unlock()
}

// mayUse reports whether this process might write rules at all.
func mayUse() bool { return os.Geteuid() == 0 }
