// SPDX-License-Identifier: Apache-2.0

/*
Package traffic calls a node all the time, as clients do, and counts the calls that failed:

	new connections       connect, write a word, read it back, close
	kept connections      write a word every 20 ms, and read it back
	streams of datagrams  the same over UDP; a lost datagram is no failure, silence for Timeout is

The far ends echo what they read. A call fails by a reset, an ICMP error, a wrong answer or an
end of file at once, and by silence only after Timeout: on a busy machine an answer may be late.
*/
package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
)

// Timeout limits the wait for an answer. It is many times what a busy machine needs.
const Timeout = time.Minute

// pause is the time between two words on a kept connection.
const pause = 20 * time.Millisecond

// A Caller calls from one address to another.
type Caller struct {
	Name string
	Dial func(context.Context, string, netip.AddrPort) (net.Conn, error)
	To   netip.AddrPort
	UDP  bool                 // it also calls by datagrams
	Ask  func(net.Conn) error // on a new connection; nil: Say
}

// From returns a Caller that calls from an address of a host.
func From(host interface {
	Dial(context.Context, string, netip.Addr, netip.AddrPort) (net.Conn, error)
}, name string, from netip.Addr, to netip.AddrPort) Caller {
	return Caller{Name: name, To: to, Dial: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
		return host.Dial(ctx, network, from, to)
	}}
}

// Echo answers connections with what they send, until l is closed.
func Echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }() // ends with its caller
	}
}

// EchoPackets answers datagrams with what they contain, until conn is closed.
func EchoPackets(conn net.PacketConn) {
	said := make([]byte, 64)
	for {
		count, from, err := conn.ReadFrom(said)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = conn.WriteTo(said[:count], from)
		}
	}
}

// Over returns the network of a call: "tcp" or "udp" of the address's family.
func (c Caller) Over(protocol string) string {
	if c.To.Addr().Is4() {
		return protocol + "4"
	}
	return protocol + "6"
}

// Once connects, writes a word, reads it back, and returns how long that took. It waits up to Timeout, even if ctx ends
// meanwhile: a call that has started counts.
func (c Caller) Once(ctx context.Context) (time.Duration, error) { return c.call(ctx, Timeout) }

// Try is Once for a caller that tries again: it waits for one second.
func (c Caller) Try(ctx context.Context) error {
	_, err := c.call(ctx, time.Second)
	return err
}

func (c Caller) call(ctx context.Context, timeout time.Duration) (time.Duration, error) {
	began := time.Now()
	limited, cancel := context.WithDeadline(context.WithoutCancel(ctx), began.Add(timeout))
	defer cancel()
	conn, err := c.Dial(limited, c.Over("tcp"), c.To)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(began.Add(timeout))
	if c.Ask != nil {
		err = c.Ask(conn)
	} else {
		err = Say(conn)
	}
	return time.Since(began), err
}

// Say writes a word, and reads it back.
func Say(conn net.Conn) error {
	if _, err := conn.Write([]byte("points")); err != nil {
		return err
	}
	heard := make([]byte, 6)
	_, err := io.ReadFull(conn, heard)
	if err == nil && string(heard) != "points" {
		err = fmt.Errorf("the answer is %q", heard)
	}
	return err
}

// A Plan is the load for each caller.
type Plan struct {
	New   int                  // loops of new connections, one after the other
	Every time.Duration        // the least time between two of them
	Keep  int                  // kept connections
	Lives func() time.Duration // duration of a kept connection or stream; nil: that of the load
}

// A Failure is a call that failed.
type Failure struct {
	What      string
	New       bool      // on a new connection, not on a kept one
	Began, At time.Time // the connection and the error
	After     time.Duration
	Err       error
}

func (f Failure) String() string {
	return fmt.Sprintf("%s after %.3f s: %v", f.What, f.After.Seconds(), short(f.Err))
}

func short(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Counts are the results of calls.
type Counts struct {
	New    int // new connections that were answered
	Kept   int // answers on kept connections
	Worst  time.Duration
	Stall  time.Duration // longest time for an answer on a kept connection
	Failed []Failure
	Took   time.Duration
}

// A Load is a number of callers at work.
type Load struct {
	plan  Plan
	began time.Time
	stop  context.CancelFunc
	calls sync.WaitGroup

	mu     sync.Mutex // guards counts
	counts Counts
}

// Start lets these callers call, until End.
func Start(p Plan, callers ...Caller) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{plan: p, stop: cancel, began: time.Now()}
	for _, c := range callers {
		for range p.New {
			l.calls.Go(func() { l.anew(ctx, c) })
		}
		for range p.Keep {
			l.calls.Go(func() { l.again(ctx, func(ctx context.Context) { l.keep(ctx, c) }) })
		}
		if c.UDP {
			l.calls.Go(func() { l.again(ctx, func(ctx context.Context) { l.stream(ctx, c) }) })
		}
	}
	return l
}

// End stops the callers, and returns the results. It may be called again.
func (l *Load) End() Counts {
	l.stop()
	l.calls.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts.Took == 0 {
		l.counts.Took = time.Since(l.began)
	}
	return l.counts
}

// Done ends a load, and checks that no call has failed.
func (l *Load) Done(t testing.TB, what string) {
	t.Helper()
	counts := l.End()
	t.Logf("%s: %d new connections and %d answers on kept ones in %.0f s, %d failed", what, counts.New, counts.Kept, counts.Took.Seconds(), len(counts.Failed))
	for _, f := range counts.Failed[:min(10, len(counts.Failed))] {
		t.Error(what, f)
	}
	if l.plan.New > 0 && counts.New == 0 || l.plan.Keep > 0 && counts.Kept == 0 {
		t.Errorf("%s: nothing was answered", what)
	}
}

// Sofar returns the results until now.
func (l *Load) Sofar() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.counts
	t.Failed = t.Failed[:len(t.Failed):len(t.Failed)]
	return t
}

// More waits until that many more calls on new connections have been answered.
func (l *Load) More(t testing.TB, calls int) {
	t.Helper()
	want := l.Sofar().New + calls
	eventually.Succeeds(t, "calls are answered", func() error {
		if n := l.Sofar().New; n < want {
			return fmt.Errorf("%d, want %d", n, want)
		}
		return nil
	})
}

// again keeps one connection after the other.
func (l *Load) again(ctx context.Context, keep func(context.Context)) {
	if l.plan.Lives == nil {
		keep(ctx)
		return
	}
	for ctx.Err() == nil {
		life, cancel := context.WithTimeout(ctx, l.plan.Lives())
		keep(life)
		cancel()
		time.Sleep(pause)
	}
}

// anew connects, writes a word and reads it back, again and again.
func (l *Load) anew(ctx context.Context, c Caller) {
	next := time.NewTicker(l.plan.Every)
	defer next.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		took, err := c.Once(ctx)
		l.note(&l.counts.New, began, took, err, "new from %s to %s", c.Name, c.To)
		<-next.C
	}
}

// keep calls on one connection until ctx ends.
func (l *Load) keep(ctx context.Context, c Caller) {
	opened := time.Now()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	conn, err := c.Dial(limited, c.Over("tcp"), c.To)
	cancel()
	if err != nil {
		l.note(&l.counts.New, opened, 0, err, "to keep, from %s to %s", c.Name, c.To)
		return
	}
	defer conn.Close()
	next := time.NewTicker(pause)
	defer next.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		_ = conn.SetDeadline(began.Add(Timeout))
		err := Say(conn)
		l.note(&l.counts.Kept, opened, time.Since(began), err, "kept, from %s to %s", c.Name, c.To)
		if err != nil {
			return
		}
		<-next.C
	}
}

// stream sends datagrams and reads answers. A lost datagram is no failure, silence is.
func (l *Load) stream(ctx context.Context, c Caller) {
	opened := time.Now()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	conn, err := c.Dial(limited, c.Over("udp"), c.To)
	cancel()
	if err != nil {
		l.note(&l.counts.Kept, opened, 0, err, "a stream from %s to %s", c.Name, c.To)
		return
	}
	defer conn.Close()
	next := time.NewTicker(pause)
	defer next.Stop()
	heard, said := time.Now(), make([]byte, 64)
	for ctx.Err() == nil {
		_, _ = conn.Write([]byte("points")) // an error may be that of an earlier datagram
		_ = conn.SetReadDeadline(time.Now().Add(15 * time.Millisecond))
		switch _, err := conn.Read(said); {
		case err == nil:
			l.note(&l.counts.Kept, opened, time.Since(heard), nil, "")
			heard = time.Now()
		case !errors.Is(err, os.ErrDeadlineExceeded):
			l.note(&l.counts.Kept, opened, 0, err, "a stream from %s to %s", c.Name, c.To)
			return
		case time.Since(heard) > Timeout:
			l.note(&l.counts.Kept, opened, 0, errors.New("silence"), "a stream from %s to %s", c.Name, c.To)
			return
		}
		<-next.C
	}
}

func (l *Load) note(count *int, began time.Time, took time.Duration, err error, format string, args ...any) {
	at := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.counts.Failed = append(l.counts.Failed, Failure{
			What: fmt.Sprintf(format, args...), New: count == &l.counts.New, Began: began, At: at, After: at.Sub(l.began), Err: err,
		})
		return
	}
	*count++
	l.counts.Worst = max(l.counts.Worst, took)
	if count == &l.counts.Kept {
		l.counts.Stall = max(l.counts.Stall, took)
	}
}
