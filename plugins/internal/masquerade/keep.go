// SPDX-License-Identifier: Apache-2.0

package masquerade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A Keeper maintains the object for other programs, and Forward, in both families, for a dataplane that does
// not use the iptables programs itself. The programs run in the background. If they are missing, slow or
// failing, no Service waits for them.
type Keeper struct {
	Holder string
	Ledger *ledger.Ledger
	Log    *slog.Logger
	Note   func(about string, now ...string) // called with the reason if the object is not maintained, without one if it is

	doubted atomic.Bool
	written atomic.Uint32 // number of writes; at least 1 after the first attempt

	mu      sync.Mutex // guards the fields below
	bit     uint8
	legacy  [2]bool            // families that had legacy tables
	end     context.CancelFunc // nil: keep does not run
	running sync.WaitGroup
}

// Written returns a number that changes when chains are written. It is zero until the first attempt, or until
// it is known that the programs are missing.
func (m *Keeper) Written() uint32 { return m.written.Load() }

// The object is checked every marksGap if the last check failed or another program has changed something since,
// otherwise every marksEvery.
const marksGap, marksEvery = 3 * time.Second, time.Minute

// marksWithin limits the time that the programs may take.
const marksWithin = 30 * time.Second

// Look checks in advance whether the programs exist, and calls Note if not.
func (m *Keeper) Look() {
	var errs []error
	for _, program := range []string{"iptables", "iptables-nft", "iptables-legacy"} {
		_, err := exec.LookPath(program)
		if err == nil {
			return
		}
		errs = append(errs, err)
	}
	m.written.Add(1)
	m.note(errs[0])
}

// note calls Note with the reason why the object is not maintained. nil means that it is.
func (m *Keeper) note(err error) {
	if err == nil {
		m.Note(Mark)
		return
	}
	m.Note(Mark, fmt.Sprintf("%s for other programs and %s are not maintained, and Services are served without them: %v", Mark, Forward, err))
}

// Doubt says that another program has changed something.
func (m *Keeper) Doubt() { m.doubted.Store(true) }

// Begin starts to maintain the objects with a mark bit. With now it also writes them before it returns, unless
// that takes long. Its goroutine ends with Stop.
func (m *Keeper) Begin(bit uint8, now bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.end != nil && m.bit == bit {
		return
	}
	if m.end != nil {
		m.end()
		m.running.Wait()
	}
	ctx, end := context.WithCancel(context.Background())
	m.bit, m.end = bit, end
	if now {
		soon, end := context.WithTimeout(ctx, marksGap)
		_, _ = m.ensure(soon, nil, bit) // keep logs errors
		end()
	}
	m.running.Go(func() { m.keep(ctx, bit) })
}

// Stop ends the goroutine of Begin, and leaves the objects as they are.
func (m *Keeper) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.end == nil {
		return
	}
	m.end()
	m.running.Wait()
	m.end = nil
}

// keep checks the objects until ctx ends.
func (m *Keeper) keep(ctx context.Context, bit uint8) {
	defer m.note(nil)
	ticker := time.NewTicker(marksGap)
	defer ticker.Stop()
	var holds []*Hold
	var failed error
	var looked time.Time
	for {
		if m.doubted.Swap(false) || failed != nil || time.Since(looked) >= marksEvery {
			before := failed
			holds, failed = m.ensure(ctx, holds, bit)
			if ctx.Err() != nil {
				return
			}
			looked = time.Now()
			m.note(failed)
			if failed != nil && (before == nil || before.Error() != failed.Error()) {
				m.Log.Warn("cannot maintain KUBE-MARK-MASQ for other programs; Services are served without it", "err", failed)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ensure repairs the objects in each place. It looks for places again until each family has one, because the
// programs may be installed later, and when legacy tables appear.
func (m *Keeper) ensure(ctx context.Context, holds []*Hold, bit uint8) ([]*Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, marksWithin)
	defer cancel()
	var err error
	legacy := [2]bool{iptables.InUse(sdk.IPv4, iptables.Legacy), iptables.InUse(sdk.IPv6, iptables.Legacy)}
	if len(holds) < 4 || legacy != m.legacy {
		m.legacy = legacy
		holds, err = m.open(ctx)
	}
	var wrote int
	for _, h := range holds {
		h.Doubt()
		steps, failed := h.Ensure(ctx, bit)
		wrote += len(steps)
		if failed == nil && h.Unsure() != "" {
			failed = errors.New(h.Unsure())
		}
		err = errors.Join(err, failed)
	}
	if wrote > 0 || m.written.Load() == 0 {
		m.written.Add(1)
	}
	return holds, err
}

// open returns the holds for all places that have programs.
func (m *Keeper) open(ctx context.Context) (holds []*Hold, err error) {
	tools, err := iptables.OpenAll(ctx, "auto", func(note string) { m.Log.Warn(note) })
	for _, tool := range tools {
		holds = append(holds, &Hold{Ledger: m.Ledger, Holder: m.Holder, Tool: tool})
	}
	for _, tool := range append(tools, toolsInUse(ctx)...) {
		if !slices.ContainsFunc(holds, func(h *Hold) bool { return h.of == forwarding && placeOf(h.Tool) == placeOf(tool) }) {
			holds = append(holds, &Hold{Ledger: m.Ledger, Holder: m.Holder, Tool: tool, of: forwarding})
		}
	}
	return holds, err
}

// toolsInUse returns the tools of every backend that may have tables here.
func toolsInUse(ctx context.Context) (tools []iptables.Tool) {
	for _, of := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tools = append(tools, iptables.ToolsInUse(ctx, of)...)
	}
	return tools
}

// LeaveAll makes a dataplane leave both objects wherever the iptables programs find them (see Leave). It is for
// a dataplane without own rules that lead to them.
func LeaveAll(ctx context.Context, dir, holder string, l sdk.Leftovers) ([]string, error) {
	tools, none := toolsInUse(ctx), func(iptables.ID) bool { return false }
	gone, err := forwarding.leave(ctx, dir, holder, tools, l, none, false)
	marks, failed := Leave(ctx, dir, holder, tools, l, none)
	return append(gone, marks...), errors.Join(err, failed)
}
