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

// A Keeper keeps the object for other programs, and Forward, in both families, for a dataplane that does not write
// by iptables' programs itself: they run beside everything else, and if they are missing, slow or fail,
// no Service waits for them.
type Keeper struct {
	Holder string
	Ledger *ledger.Ledger
	Log    *slog.Logger
	Note   func(about string, now ...string) // is told that the object is not kept, and why; nothing: it is

	doubted atomic.Bool
	written atomic.Uint32 // how often something was written, or could not be for the first time

	mu      sync.Mutex // guards what follows
	bit     uint8
	legacy  [2]bool            // in which family legacy's tables were there
	end     context.CancelFunc // nil: nothing runs
	running sync.WaitGroup
}

// Written returns another number when chains were written since, and zero until that was tried or known to be in vain.
func (m *Keeper) Written() uint32 { return m.written.Load() }

// The object is looked at as often as this: each time when the last one failed or another program
// has changed anything since, else each minute.
const marksGap, marksEvery = 3 * time.Second, time.Minute

// marksWithin is how long the programs may take.
const marksWithin = 30 * time.Second

// Look notes beforehand whether the programs are there.
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

// note says that the object is not kept, and why; nil: it is.
func (m *Keeper) note(err error) {
	if err == nil {
		m.Note(Mark)
		return
	}
	m.Note(Mark, fmt.Sprintf("%s for other programs and %s are not kept, and Services are served without: %v", Mark, Forward, err))
}

// Doubt says that another program has changed something.
func (m *Keeper) Doubt() { m.doubted.Store(true) }

// Begin has the objects be kept, with the bit that the host said last, and with now it writes them before it returns, unless
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
		_, _ = m.ensure(soon, nil, bit) // keep says why not
		end()
	}
	m.running.Go(func() { m.keep(ctx, bit) })
}

// Stop ends that, and leaves the object as it is.
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

// keep looks again and again, until ctx ends.
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
				m.Log.Warn("cannot keep KUBE-MARK-MASQ for other programs; Services are served without", "err", failed)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ensure puts back what the objects lack in each place. Those are looked for until each family has
// one, for its programs may come later, and when legacy's tables come to be there.
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

// open finds the programs.
func (m *Keeper) open(ctx context.Context) (holds []*Hold, err error) {
	tools, err := iptables.OpenAll(ctx, "auto", func(note string) { m.Log.Warn(note) })
	for _, tool := range tools {
		holds = append(holds, &Hold{Ledger: m.Ledger, Holder: m.Holder, Tool: tool})
	}
	for _, tool := range append(tools, toolsInUse(ctx)...) {
		if !slices.ContainsFunc(holds, func(h *Hold) bool { return h.of == forwarding && place(h.Tool) == place(tool) }) {
			holds = append(holds, &Hold{Ledger: m.Ledger, Holder: m.Holder, Tool: tool, of: forwarding})
		}
	}
	return holds, err
}

// toolsInUse are those of every backend that has, or may have, tables here.
func toolsInUse(ctx context.Context) (tools []iptables.Tool) {
	for _, of := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tools = append(tools, iptables.ToolsInUse(ctx, of)...)
	}
	return tools
}

// LeaveAll has a dataplane leave both objects wherever iptables' programs find them (Leave). None of its
// own rules lead there.
func LeaveAll(ctx context.Context, dir, holder string, l sdk.Leftovers) ([]string, error) {
	tools, none := toolsInUse(ctx), func(iptables.ID) bool { return false }
	gone, err := forwarding.leave(ctx, dir, holder, tools, l, none, false)
	marks, failed := Leave(ctx, dir, holder, tools, l, none)
	return append(gone, marks...), errors.Join(err, failed)
}
