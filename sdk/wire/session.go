// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// errNoSession is for a call that needs a session and came before any.
var errNoSession = errors.New("no session: Configure comes first")

// A session is what Serve knows of the host it works for. It is written only by
// the call that holds the semaphore, and read by Report at any time.
type session struct {
	mu         sync.Mutex // guards what is below
	id         string     // empty: none has begun
	configured bool       // Configure succeeded
	begun      bool       // its first Full was acknowledged
	revision   uint64     // the last one acknowledged
	role       sdk.Role   // of the process: it outlives sessions
}

// begin ends every older session: its calls are refused from here on.
func (s *session) begin(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.configured, s.begun, s.revision = id, false, false, 0
}

func (s *session) confirm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.configured = true
}

// admit checks that a call is of the present session.
func (s *session) admit(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.id == "":
		return errNoSession
	case s.id != id:
		return ErrFenced
	case !s.configured:
		return errors.New("the session is not configured: Configure failed")
	}
	return nil
}

// admitAny is admit for calls that need no session where none has begun.
func (s *session) admitAny(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != "" && s.id != id {
		return ErrFenced
	}
	return nil
}

// follows checks that u leads on from what was acknowledged.
func (s *session) follows(u sdk.Update) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case u.Full:
		return nil
	case !s.begun:
		return fmt.Errorf("the session has not had a full update: %w", sdk.ErrResync)
	case u.From != s.revision:
		return fmt.Errorf("update leads from revision %d, the last one acknowledged is %d: %w", u.From, s.revision, sdk.ErrResync)
	}
	return nil
}

func (s *session) acknowledge(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.revision = true, revision
}

func (s *session) setRole(role sdk.Role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role = role
}

func (s *session) now() (revision uint64, role sdk.Role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, s.role
}
