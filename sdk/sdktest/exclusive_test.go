// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestExclusive: one of two runs on a machine has the loopback testbed, and the other waits until
// its context ends.
func TestExclusive(t *testing.T) {
	s := Subject{Testbed: Loopback()}
	done, err := s.exclusive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.exclusive(brief); err == nil || !strings.Contains(err.Error(), "no other run") {
		t.Errorf("the second run got the testbed beside the first, or its error does not say why it waited: %v", err)
	}
	second := make(chan error, 1)
	go func() { // ends when the first is done
		done, err := s.exclusive(t.Context())
		if err == nil {
			done()
		}
		second <- err
	}()
	done()
	if err := <-second; err != nil {
		t.Error(err)
	}
	if _, err := (Subject{Testbed: said{}}).exclusive(t.Context()); err != nil {
		t.Errorf("another testbed than Loopback: %v", err)
	}
}
