// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"testing"
	"testing/synctest"
	"time"
)

// Memory is given back a while after many Services were followed, in one update or in many,
// and once for all that came meanwhile; after few it is not.
func TestMemoryIsGivenBackAfterManyServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		freed := 0
		tidier := newTidier()
		tidier.free = func() { freed++ }
		later := func(want int, what string) {
			t.Helper()
			time.Sleep(4 * tidyAfter)
			synctest.Wait()
			if freed != want {
				t.Errorf("%s: %d collections, want %d", what, freed, want)
			}
		}
		for range much - 1 {
			tidier.took(1)
		}
		later(0, "after few Services")
		tidier.took(1)
		tidier.took(much)
		later(1, "after many")
		tidier.took(much)
		later(2, "after as many again")
		tidier.took(20 * much)
		later(3, "after very many")
		tidier.took(9 * much)
		later(3, "after less than half of those")
		tidier.took(much)
		later(4, "after half of them")
		tidier.took(20 * much)
		tidier.stop()
		later(4, "after the end")
	})
}
