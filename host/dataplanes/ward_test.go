// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

func services(names ...string) (all []sdk.Name) {
	for _, n := range names {
		all = append(all, service(n))
	}
	return all
}

// TestSuspects are those that a process was told of at each of its deaths, once it has
// died twice of what it was told.
func TestSuspects(t *testing.T) {
	for name, c := range map[string]struct {
		life func(*ward)
		want []sdk.Name // of the next death, while it is told of b and c
	}{
		"died once of more":        {func(w *ward) { w.note(services("a", "b")); w.died() }, services("b")},
		"never died":               {func(*ward) {}, nil},
		"died of something else":   {func(w *ward) { w.note(services("a")); w.died() }, nil},
		"died of this only lately": {func(w *ward) { w.note(services("a")); w.died(); w.note(services("c")); w.died() }, services("c")},
		"died while told nothing":  {func(w *ward) { w.died() }, nil},
		"lived in between":         {func(w *ward) { w.note(services("b")); w.died(); w.note(services("b")); w.survived() }, nil},
		"dies while it is hunted":  {func(w *ward) { w.hunting, w.deaths, w.fatal = true, 2, services("b") }, nil},
		"was told of it and lived": {func(w *ward) { w.note(services("b")); w.survived(); w.died() }, nil},
	} {
		var w ward
		c.life(&w)
		w.note(services("b", "c"))
		if got := w.died(); !slices.Equal(got, c.want) || w.hunting != (c.want != nil || name == "dies while it is hunted") {
			t.Errorf("one that %s: suspects %v, hunting %t, want %v", name, got, w.hunting, c.want)
		}
	}
}

// TestFreed are those aside that changed, or are gone, but not while it is being found
// out who is guilty.
func TestFreed(t *testing.T) {
	value := map[sdk.Name]sdk.Service{service("same"): {}, service("other"): {}, service("gone"): {}}
	look := func(n sdk.Name) (sdk.Service, bool) { v, ok := value[n]; return v, ok }
	var w ward
	w.put(services("same", "other", "gone", "never"), look)
	value[service("other")] = sdk.Service{Cluster: []sdk.Endpoint{{OnNode: true}}}
	delete(value, service("gone"))
	w.hunting = true
	if free := w.release(look); free != nil || len(w.names()) != 3 {
		t.Errorf("during the hunt %v are freed of %v", free, w.names())
	}
	w.hunting = false
	free := w.release(look)
	slices.SortFunc(free, sdk.Name.Compare)
	if !slices.Equal(free, services("gone", "other")) || !slices.Equal(w.names(), services("same")) {
		t.Errorf("%v are freed, and %v stay", free, w.names())
	}
}

// TestSecondPoison leaves the first aside.
func TestSecondPoison(t *testing.T) {
	p := &dataplane{tracker: track.New(nil), reports: report.New(time.Now), supervisor: supervise.New(supervise.Plugin{}, supervise.Hooks{})}
	c := newCanary(p.tracker, "node", nil)
	c.tell(near, canaryAddr.Next(), 80, 0, netip.MustParseAddrPort("10.180.0.1:80"))
	c.tell(afar, canaryAddr, 80, 0, netip.MustParseAddrPort("10.180.0.1:80"))
	p.tracker.Synced()
	first := sdk.Name{Namespace: canarySpace, Service: near, Protocol: sdk.TCP, Family: sdk.IPv4}
	second := first
	second.Service = afar
	p.ward.put([]sdk.Name{first}, p.tracker.Value)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody is tried
	for range twice {
		p.ward.note([]sdk.Name{second})
		p.bury(ctx)
	}
	p.hunts.Wait()
	if aside := p.ward.names(); !slices.Contains(aside, first) || !slices.Contains(aside, second) {
		t.Errorf("aside are %v", aside)
	}
}
