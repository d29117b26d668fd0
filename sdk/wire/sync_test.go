// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman/pointsman/internal/procs"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
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

// While an update of many Services is on its way, sent or followed, all processors are in use;
// one of few leaves a process that asked for one processor at one.
func TestManyServicesHaveAllProcessors(t *testing.T) {
	all := runtime.GOMAXPROCS(0)
	if _, set := os.LookupEnv("GOMAXPROCS"); set || all == 1 {
		t.Skip("needs several processors, and GOMAXPROCS unset")
	}
	defer procs.One()()
	for services, want := range map[int]int{much - 1: 1, much: all} {
		var sending work
		sending.of(services)
		if got := runtime.GOMAXPROCS(0); got != want {
			t.Errorf("%d Services of an update have %d processors, want %d", services, got, want)
		}
		sending.end()
		counting := &processors{}
		r := configured(t, local(t, counting), order{})
		if _, err := r.Sync(soon(t), bulk(services, 1)); err != nil {
			t.Fatal(err)
		}
		if counting.used != want {
			t.Errorf("%d Services are followed on %d processors, want %d", services, counting.used, want)
		}
		eventually.True(t, "one processor is left", func() bool { return runtime.GOMAXPROCS(0) == 1 })
	}
}

// processors is a dataplane that notes how many processors its last Sync had.
type processors struct {
	subject
	used int
}

func (p *processors) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	p.used = runtime.GOMAXPROCS(0)
	return p.subject.Sync(ctx, u)
}
