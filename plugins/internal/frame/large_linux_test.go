// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// few is how many endpoints a divided family writes at once.
const few = 10

// divided is a family in memory that writes large Services in slices.
type divided struct{ *memory }

func (d divided) Behind() bool { return false }

func (d divided) Divide(name sdk.Name, desired *sdk.Service, more bool) (*sdk.Service, int) {
	now := d.desired[name]
	there := 0
	if now != nil {
		there = len(now.Cluster)
	}
	if desired == nil || len(desired.Cluster)-there <= few {
		return desired, 0
	}
	if !more {
		return now, len(desired.Cluster) - there
	}
	next := *desired
	next.Cluster = next.Cluster[:there+few]
	return &next, len(desired.Cluster) - len(next.Cluster)
}

func dividing(k *kernel) Mode[*sdk.Service] {
	m := inMemory(k)
	m.Open = func(context.Context, sdk.Setup, Env) (Session[*sdk.Service], error) {
		return Session[*sdk.Service]{Families: []Family[*sdk.Service]{divided{newMemory(sdk.IPv4, k)}}}, nil
	}
	return m
}

// TestLargeComesLast: others are served first, what is left when the time is up is named,
// and goes on between calls.
func TestLargeComesLast(t *testing.T) {
	t.Parallel()
	k := newKernel()
	l := beginMode(t, k, dividing(k), t.TempDir())
	l.Among = 0
	l.full(service(1, 1))
	l.become(sdk.Active)
	r := l.set(service(1, 2), service(2, 95))
	if len(r.Failed) != 1 || r.Failed[0].Name != service(2, 0).Name {
		t.Errorf("failed: %v", r.Failed)
	}
	k.expect(t, service(1, 2))
	eventually.True(t, "the rest is written", func() bool { return k.differs([]sdk.Service{service(1, 2), service(2, 95)}) == nil })
	if r := l.set(service(2, 95)); len(r.Failed) > 0 {
		t.Errorf("offered again, it failed: %v", r.Failed)
	}
}

// TestLargeInTime is written whole, slice by slice.
func TestLargeInTime(t *testing.T) {
	t.Parallel()
	k := newKernel()
	l := beginMode(t, k, dividing(k), t.TempDir())
	l.full(service(1, 1))
	l.become(sdk.Active)
	if r := l.set(service(2, 95)); len(r.Failed) > 0 {
		t.Errorf("failed: %v", r.Failed)
	}
	k.expect(t, service(1, 1), service(2, 95))
	if k.written() != 1+10 {
		t.Errorf("it took %d writes", k.written()-1)
	}
}

// TestCallInterrupts: what is done between calls ends when a call waits.
func TestCallInterrupts(t *testing.T) {
	t.Parallel()
	s := newSemaphore()
	work, done, err := s.idle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan error, 1)
	go func() { called <- s.call(t.Context()) }() // ends with the call
	select {
	case <-work.Done():
	case <-time.After(eventually.Timeout):
		t.Fatal("nothing told it to end")
	}
	done()
	if err := <-called; err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if s.call(ended) == nil {
		t.Error("a call that came too late had its turn")
	}
	if _, _, err := s.idle(ended); err == nil {
		t.Error("so had what is done between calls")
	}
	s.done()
}
