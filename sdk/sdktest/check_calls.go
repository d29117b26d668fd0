// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// contextEndsInSync checks that a long Sync stops when its context ends, or has ended before, and
// that the next update, the same or another, repairs the state.
func contextEndsInSync(t *trial) {
	_, b := t.twoScenarios()
	big := t.manyServices(many)
	t.serve(b)
	const soon = 20 * time.Millisecond
	for _, after := range []time.Duration{0, time.Millisecond, soon, 100 * time.Millisecond} {
		t.during("cut off after %s", after)
		ctx, cancel := context.WithTimeout(t.ctx, after)
		t.syncUntil(ctx, big)
		cancel()
		if after == soon {
			t.retry(big)
		}
		t.retry(b)
		t.during("cut off after %s, then sent again", after)
		t.serves(b)
	}
}

// syncUntil sends s with a context that ends. Only a call that hangs is an error.
func (t *trial) syncUntil(ctx context.Context, s Scenario) {
	u := s.Update(t.revision + 1)
	err := callWithGrace(ctx, func(ctx context.Context) error {
		_, err := t.dp.Sync(ctx, u)
		return err
	})
	if errors.Is(err, errHung) {
		t.fail(err)
	}
	if err == nil {
		t.revision = u.To
	}
}

// retry sends s after a call that was cut off, as a host does, until it succeeds.
func (t *trial) retry(s Scenario) {
	t.need(poll(t.ctx, 2*t.timeout(), func() error { return t.syncAll(s.Update(0)) }))
}

// besideSync checks that Inspect and Report return while updates are in progress.
func besideSync(t *trial) {
	a, b := t.twoScenarios()
	t.serve(a)
	ctx, cancel := context.WithCancel(t.ctx)
	asked := make(chan error, 1)
	go func() { asked <- t.askAgainAndAgain(ctx) }() // ends with ctx
	var err error
	for i := 0; i < 25 && err == nil; i++ {
		if err = t.syncAll(delta(a, b)); err == nil {
			err = t.syncAll(delta(b, a))
		}
	}
	cancel()
	t.during("asked while updates came in")
	t.need(errors.Join(err, <-asked))
	t.serves(a)
}

// askAgainAndAgain calls Inspect and Report until ctx ends.
func (t *trial) askAgainAndAgain(ctx context.Context) error {
	for ctx.Err() == nil {
		if r, ok := t.dp.(*wire.Remote); ok {
			if _, err := r.Vitals(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("report: %w", err)
			}
		}
		if i, ok := t.dp.(sdk.Inspector); ok {
			err := i.Inspect(ctx, func(sdk.Served) error { return nil })
			if err != nil && !errors.Is(err, wire.ErrUnsupported) && ctx.Err() == nil {
				return fmt.Errorf("inspect: %w", err)
			}
		}
		runtime.Gosched()
	}
	return nil
}

// noChildrenLeft checks that no child of the plugin's process is left after a call was cut off.
func noChildrenLeft(t *trial) {
	r, ok := t.dp.(*wire.Remote)
	if !ok || r.Hello().PID == 0 || r.Target().Network == "local" {
		t.fail(excused{"the dataplane is in this process"})
	}
	_, b := t.twoScenarios()
	t.serve(b)
	ctx, cancel := context.WithTimeout(t.ctx, 20*time.Millisecond)
	defer cancel()
	t.syncUntil(ctx, t.manyServices(many))
	t.need(poll(t.ctx, 10*time.Second, func() error {
		if left := children(r.Hello().PID); len(left) > 0 {
			return mismatch{"no child process", strings.Join(firstFew(left), "; ") +
				"; end what a call has started before it returns; run a daemon as a unit or container of its own"}
		}
		return nil
	}))
}

// many is the number of Services in a large cluster.
const many = 10000

// tenThousandServices checks that after an update with ten thousand Services a single change is
// cheap in comparison.
func tenThousandServices(t *trial) {
	s := t.manyServices(many)
	began := time.Now()
	t.serve(s)
	all := time.Since(began)
	if err := t.differs(s); err != nil && !errors.As(err, new(notRun)) {
		t.fail(err)
	}
	// A busy machine makes some changes slow. If a dataplane renders everything for each
	// change, all changes take as long as the first update.
	t.during("one change among %d Services", many)
	least := time.Duration(math.MaxInt64)
	for i := range 9 {
		changed := s.Services[i*1000]
		changed.Cluster = changed.Cluster[:1+i%2]
		began := time.Now()
		t.sync(sdk.Update{Set: []sdk.Service{changed}})
		if least = min(least, time.Since(began)); least <= max(all/2, 50*time.Millisecond) {
			return
		}
	}
	t.fail(mismatch{
		fmt.Sprintf("at most half of the %s that all of them take", all.Round(time.Millisecond)),
		least.Round(time.Millisecond).String(),
	})
}

// manyServices returns a state of n Services with two endpoints each, placed.
func (t *trial) manyServices(n int) Scenario {
	s := Scenario{Name: "many", Node: defaultNode()}
	for i := range n {
		s.Services = append(s.Services, sdk.Service{
			Name:      sdk.Name{Namespace: "many", Service: fmt.Sprintf("web-%05d", i), Port: "http", Protocol: sdk.TCP, Family: sdk.IPv4},
			Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: addrAt(172, 30, i, 8000), Policy: sdk.Cluster}},
			Cluster:   []sdk.Endpoint{{Addr: addrAt(10, 181, i, 8080)}, {Addr: addrAt(10, 182, i, 8080)}},
		})
	}
	s, _ = t.place(s)
	return s
}

// addrAt returns the i-th address of a range, with a port.
func addrAt(a, b byte, i int, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{a, b, byte(i >> 8), byte(i)}), port)
}

// children returns the names of the processes whose parent is pid, including zombies; none if
// there is no /proc.
func children(pid int) (names []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		name := 1 + bytes.LastIndexByte(data, ')') // pid (any name) state parent …
		if fields := bytes.Fields(data[name:]); len(fields) > 1 && string(fields[1]) == strconv.Itoa(pid) {
			names = append(names, "pid "+string(data[:name]))
		}
	}
	return names
}
