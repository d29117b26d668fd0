// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"sync"
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
	env frame.Env

	mu      sync.Mutex // guards what follows
	bit     uint8
	end     context.CancelFunc // nil: nothing runs
	running sync.WaitGroup
}

// marksEvery is how often the chain is looked at.
const marksEvery = time.Minute

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
	var holds []*masquerade.Hold
	said := ""
	for {
		var err error
		if holds == nil {
			holds, err = m.open(ctx)
		}
		for _, h := range holds {
			h.Doubt()
			_, failed := h.Ensure(ctx, bit)
			err = errors.Join(err, failed)
		}
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			m.env.Log.Warn("cannot keep KUBE-MARK-MASQ for other programs; Services are served without", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(marksEvery):
		}
	}
}

// open finds the programs.
func (m *marks) open(ctx context.Context) (holds []*masquerade.Hold, err error) {
	tools, err := iptables.OpenAll(ctx, "auto", m.env.Log)
	for _, tool := range tools {
		holds = append(holds, &masquerade.Hold{Ledger: m.env.Ledger, Holder: mode, Place: masquerade.At(tool)})
	}
	return holds, err
}

// leaveMarks lets go of the chain, on the whole node, and names what that removes.
func leaveMarks(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	var places []masquerade.Place
	for _, of := range families {
		for _, tool := range iptables.ToolsInUse(ctx, of) {
			places = append(places, masquerade.At(tool))
		}
	}
	return masquerade.Leave(ctx, env.Dir, mode, places, l, func(iptables.ID) bool { return false })
}
