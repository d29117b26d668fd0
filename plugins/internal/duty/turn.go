// SPDX-License-Identifier: Apache-2.0

package duty

import "context"

// A Turn is had by one goroutine at a time: a call of the host's, or the watch
// between two calls.
type Turn chan struct{}

// NewTurn is a turn that nobody has.
func NewTurn() Turn { return make(Turn, 1) }

// Take waits for the turn.
func (t Turn) Take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Try takes the turn if nobody has it.
func (t Turn) Try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

// Give lets the next have it.
func (t Turn) Give() { <-t }

// Enter takes the turn, and returns what gives it back.
func (t Turn) Enter(ctx context.Context) (context.Context, func(), error) {
	if err := t.Take(ctx); err != nil {
		return nil, nil, err
	}
	return ctx, t.Give, nil
}
