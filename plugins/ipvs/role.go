// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
)

// SetRole changes what the kernel catches.
func (p *plugin) SetRole(ctx context.Context, role sdk.Role) error {
	if !role.Known() {
		return fmt.Errorf("unknown role %s", role)
	}
	if err := p.take(ctx); err != nil {
		return err
	}
	defer p.turn.Give()
	if role == sdk.Yielded {
		return p.yield()
	}
	if p.ledger == nil {
		return errors.New("a role before a session: call Configure first")
	}
	was := p.role
	if was == sdk.Yielded {
		p.role = 0
	}
	if err := p.begin(ctx, false); err != nil {
		return err
	}
	defer p.publish()
	if err := p.setRole(role); err != nil {
		return err
	}
	p.stands = role == sdk.Standby
	if p.lock == nil {
		return nil // it takes effect once the writer has yielded
	}
	if err := p.follow(ctx); err != nil {
		return err
	}
	if role == sdk.Draining {
		return p.countFlows(was != sdk.Draining) // before they can be taken for none
	}
	p.tellFlows(0)
	if role == sdk.Active && was != sdk.Active {
		return p.forget(sdk.Changes{Full: true}, nil)
	}
	return nil
}

// follow makes the kernel what the role asks for. Before the first update nobody knows
// what is wanted: what serves goes on, and the role takes effect with that update.
func (p *plugin) follow(ctx context.Context) error {
	if p.state.Revision() == 0 {
		return nil
	}
	if p.claim.Owes() {
		failed, err := p.writePlanned(ctx)
		if err == nil {
			p.claim.Wrote(failed)
		}
		return err
	}
	for _, s := range p.sides {
		if _, err := s.sync(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func (p *plugin) yield() error {
	p.role = sdk.Yielded
	return p.unlock()
}

// Close ends what this process does beside the host's calls, lets go of the lock, and
// of the kernel, which stays as it is.
func (p *plugin) Close() error {
	p.claim.Close()
	if err := p.take(context.Background()); err != nil {
		return err
	}
	defer p.turn.Give()
	err := p.unlock()
	p.kernel.close()
	p.kernel = kernel{}
	return err
}

// unlock gives up the right to write, and with it the duty to watch.
func (p *plugin) unlock() error {
	p.claim.Forget()
	if p.lock == nil {
		return nil
	}
	p.stopWatch()
	lock := p.lock
	p.lock = nil
	p.hold()
	return lock.Unlock()
}

// setRole tells the books which role they are to plan for.
func (p *plugin) setRole(role sdk.Role) error {
	p.role = role
	if role == sdk.Yielded {
		return nil // the kernel stays as it is
	}
	if role == sdk.Standby {
		if err := p.seeBusy(); err != nil {
			return err
		}
	}
	for _, s := range p.sides {
		if s.book.role != role {
			s.book.role = role
			s.book.touchAll()
		}
	}
	return nil
}

// tryLock becomes the writer, if nobody else is and we have not yielded. Who was told to
// stand by while another process was the writer begins in the role that the kernel shows:
// what serves there may be all that does.
func (p *plugin) tryLock() error {
	if p.lock != nil || p.role == sdk.Yielded {
		return nil
	}
	lock, err := p.claim.Lock(p.ledger)
	if lock == nil {
		return err
	}
	p.lock = lock
	if p.role == sdk.Standby {
		p.role = 0
	}
	p.hold()
	for _, s := range p.sides {
		s.known = false
	}
	p.startWatch()
	return p.cleaned().Remove()
}

func (p *plugin) cleaned() duty.Cleaned { return duty.CleanedIn(p.dir, mode) }
