// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
)

// TestCallInterrupts: what is done between calls ends when a call waits.
func TestCallInterrupts(t *testing.T) {
	t.Parallel()
	s := newSemaphore()
	work, done, err := s.idle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan error, 1)
	go func() { called <- s.call(t.Context()) }() // ends with the call
	select {
	case <-work.Done():
	case <-time.After(eventually.Timeout):
		t.Fatal("nothing told it to end")
	}
	done()
	if err := <-called; err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if s.call(ended) == nil {
		t.Error("a call that came too late had its turn")
	}
	if _, _, err := s.idle(ended); err == nil {
		t.Error("so had what is done between calls")
	}
	s.done()
}
