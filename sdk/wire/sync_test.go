// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"testing"
	"time"
)

// Memory is given back a while after many Services were followed, in one update or in many,
// and once for all that came meanwhile; after few it is not.
func TestMemoryIsGivenBackAfterManyServices(t *testing.T) {
	freed := make(chan struct{}, 10)
	tidier := &tidier{after: 50 * time.Millisecond, free: func() { freed <- struct{}{} }}
	for range much - 1 {
		tidier.took(1)
	}
	select {
	case <-freed:
		t.Fatal("few Services were worth a collection")
	case <-time.After(4 * tidier.after):
	}
	tidier.took(1)
	tidier.took(much)
	<-freed
	select {
	case <-freed:
		t.Fatal("there was one collection more than needed")
	case <-time.After(4 * tidier.after):
	}
	tidier.took(much)
	<-freed
	tidier.took(much)
	tidier.stop()
	select {
	case <-freed:
		t.Fatal("there was a collection after the end")
	case <-time.After(4 * tidier.after):
	}
}
