// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"

	"github.com/pointsman/pointsman/sdk"
)

// SetRole puts the jumps in place that the role needs.
func (p *plugin) SetRole(ctx context.Context, role sdk.Role) error {
	if !role.Known() {
		return fmt.Errorf("unknown role %s", role)
	}
	if err := p.turn.Take(ctx); err != nil {
		return err
	}
	defer p.turn.Give()
	if role == sdk.Yielded {
		p.role = sdk.Yielded
		return p.unlock()
	}
	if p.role == sdk.Yielded {
		p.role = 0
	}
	if p.ledger == nil {
		return errors.New("a role before a session: call Configure first")
	}
	if err := p.begin(ctx, false); err != nil {
		return err
	}
	defer p.publish()
	was := p.role
	p.role, p.caught, p.stands = role, p.caught || was != sdk.Standby, role == sdk.Standby
	if p.lock == nil {
		return nil // it takes effect once the writer has yielded
	}
	if err := p.play(ctx); err != nil {
		p.role = was
		return err
	}
	switch {
	case role != sdk.Draining:
		p.undrained()
	case !p.caught:
		p.drain.left = map[flow]bool{} // what there is, others began
	case p.drain.left == nil:
		p.tellFlows(1) // the watch counts them: to list a large table takes long, and updates wait for this call
	}
	if role == sdk.Active && was != sdk.Active {
		return p.afterwards(sdk.Changes{Full: true}, nil)
	}
	return nil
}

// play makes the tables say what the present role needs, and what was planned.
func (p *plugin) play(ctx context.Context) error {
	if p.claim.Owes() {
		failed, err := p.writePlanned(ctx)
		if err == nil {
			p.claim.Wrote(failed)
		}
		return err
	}
	for _, s := range p.sides {
		if _, err := s.sync(ctx, nil, p.role); err != nil {
			return err
		}
	}
	return nil
}

// Close ends what ends with the process.
func (p *plugin) Close() error {
	p.claim.Close()
	if err := p.turn.Take(context.Background()); err != nil {
		return err
	}
	defer p.turn.Give()
	return p.unlock()
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
	p.watch = p.startWatch()
	return p.cleanedMark().Remove()
}

// hold hands the lock to whatever the sides run. What they knew is of before.
func (p *plugin) hold() {
	for _, s := range p.sides {
		s.Hold(nil)
		if p.lock != nil {
			s.Hold(p.lock.File())
		}
	}
}

// unlock gives up the right to write, and with it the duty to watch.
func (p *plugin) unlock() error {
	p.claim.Forget()
	if p.lock == nil {
		return nil
	}
	lock := p.lock
	p.watch.stop()
	p.lock, p.watch = nil, nil
	p.hold()
	return lock.Unlock()
}
