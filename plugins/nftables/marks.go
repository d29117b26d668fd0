// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// marks keep the chain KUBE-MARK-MASQ, to which other programs lead packets, in both families.
// It is of iptables, whose programs run beside everything else: if they are missing, slow or
// fail, no Service waits for them. Nothing of ours leads there.
type marks struct {
	env     frame.Env
	notes   *notes
	doubted atomic.Bool // another program has changed something

	mu      sync.Mutex // guards what follows
	bit     uint8
	end     context.CancelFunc // nil: nothing runs
	running sync.WaitGroup
}

// The chain is looked at as often as this: each time when the last one failed or another program
// has changed anything since, else each minute.
const marksGap, marksEvery = 3 * time.Second, time.Minute

// marksWithin is how long the programs may take.
const marksWithin = 30 * time.Second

// look notes beforehand whether the programs are there.
func (m *marks) look() {
	var errs []error
	for _, program := range []string{"iptables", "iptables-nft", "iptables-legacy"} {
		_, err := exec.LookPath(program)
		if err == nil {
			return
		}
		errs = append(errs, err)
	}
	m.note(errs[0])
}

// note says that the chain is not kept, and why; nil: it is.
func (m *marks) note(err error) {
	if err == nil {
		m.notes.set(masquerade.Mark)
		return
	}
	m.notes.set(masquerade.Mark, fmt.Sprintf("%s is not kept for other programs, and Services are served without: %v", masquerade.Mark, err))
}

// begin has the chain be kept, with the bit that the host said last. Its goroutine ends with stop.
func (m *marks) begin(bit uint8) {
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
	m.running.Go(func() { m.keep(ctx, bit) })
}

// stop ends that, and leaves the chain as it is.
func (m *marks) stop() {
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
func (m *marks) keep(ctx context.Context, bit uint8) {
	defer m.note(nil)
	ticker := time.NewTicker(marksGap)
	defer ticker.Stop()
	var holds []*masquerade.Hold
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
				m.env.Log.Warn("cannot keep KUBE-MARK-MASQ for other programs; Services are served without", "err", failed)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ensure puts back what the chain lacks in each place. Those are looked for until each family has
// one: its programs may come later.
func (m *marks) ensure(ctx context.Context, holds []*masquerade.Hold, bit uint8) ([]*masquerade.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, marksWithin)
	defer cancel()
	var err error
	if len(holds) < len(families) {
		holds, err = m.open(ctx)
	}
	for _, h := range holds {
		h.Doubt()
		_, failed := h.Ensure(ctx, bit)
		err = errors.Join(err, failed)
	}
	return holds, err
}

// open finds the programs.
func (m *marks) open(ctx context.Context) (holds []*masquerade.Hold, err error) {
	tools, err := iptables.OpenAll(ctx, "auto", func(note string) { m.env.Log.Warn(note) })
	for _, tool := range tools {
		holds = append(holds, &masquerade.Hold{Ledger: m.env.Ledger, Holder: mode, Tool: tool})
	}
	return holds, err
}

// leaveMarks lets go of the chain, on the whole node, and names what that removes.
func leaveMarks(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	var tools []iptables.Tool
	for _, of := range families {
		tools = append(tools, iptables.ToolsInUse(ctx, of)...)
	}
	return masquerade.Leave(ctx, env.Dir, mode, tools, l, func(iptables.ID) bool { return false })
}
