// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

// patience is how long an answer may take; later is never. It is what the kernel waits
// before it says a lost SYN again, so a connection that only the second one opened failed.
const patience = time.Second

// silence is how long an answer is awaited where there should be none.
const silence = time.Second

// A load is what callers of every kind do to a node: new connections all the time,
// and connections that they keep, on which they say something every 20 ms.
type load struct {
	t     testing.TB
	stop  context.CancelFunc
	calls sync.WaitGroup

	mu       sync.Mutex // guards what follows
	asked    int        // new connections that were answered
	kept     int        // answers on kept connections
	worst    time.Duration
	stall    time.Duration // the longest, of a kept connection
	failed   []string
	starved  []time.Time // when this process itself, callers and backends, did not run
	unheard  int         // failures for which that is the reason
	excused  bool        // failures so far were not the swap's
	began    time.Time
	observer *observer // nil: none
}

// A caller is one that calls from an address to one of the ways in.
type caller struct {
	name string
	dial func(context.Context, string, netip.AddrPort) (net.Conn, error)
	to   netip.AddrPort
	udp  bool // it may be called by datagrams too
}

// caller is one that calls from there; an invalid address: from the node itself.
func (n *node) caller(name string, from netip.Addr, to netip.AddrPort) caller {
	n.Helper()
	if !from.IsValid() {
		return caller{name: name, to: to, dial: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, to.String())
		}}
	}
	host, err := n.ground.Host(from)
	if err != nil {
		n.Fatal(err)
	}
	return caller{name: name, to: to, dial: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
		return host.Dial(ctx, network, from, to)
	}}
}

// over is the network by which to call: "tcp" or "udp" of the address's family.
func (c caller) over(protocol string) string {
	if c.to.Addr().Is4() {
		return protocol + "4"
	}
	return protocol + "6"
}

// callers are those from a pod, from the node itself, and from outside, to the
// virtual address and the node port.
func (n *node) callers() []caller {
	n.Helper()
	var all []caller
	ways := []netip.AddrPort{netip.AddrPortFrom(vip, port), netip.AddrPortFrom(nodeAddr, nodePort)}
	for name, from := range map[string]netip.Addr{"pod": pod, "client": client, "node": {}} {
		for _, to := range ways {
			c := n.caller(name, from, to)
			c.udp = true
			all = append(all, c)
		}
	}
	return all
}

// newLoad begins to call: more than 300 new connections a second, and 102 kept ones, of
// which 6 are streams of datagrams.
func (n *node) newLoad() *load {
	n.Helper()
	n.answering()
	o := n.observe(n.callers())
	l := n.loadOf(n.callers()...)
	l.observer = o
	n.Cleanup(func() { _, _ = o.end() })
	return l
}

// loadOf has these call.
func (n *node) loadOf(callers ...caller) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{t: n.T, stop: cancel, began: time.Now()}
	for _, c := range callers {
		for range 2 {
			l.calls.Go(func() { l.anew(ctx, c) })
		}
		for range 16 {
			l.calls.Go(func() { l.keep(ctx, c) })
		}
		if c.udp {
			l.calls.Go(func() { l.stream(ctx, c) })
		}
	}
	l.calls.Go(func() { l.watch(ctx) })
	n.Cleanup(func() { l.end() })
	return l
}

// end stops, and returns what failed.
func (l *load) end() []string {
	l.stop()
	l.calls.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// starvation is how long this process may be kept from running before its callers'
// patience says nothing of the node.
const starvation = 200 * time.Millisecond

// watch notes when this process was not run in time, as on a machine that has much
// else to do.
func (l *load) watch(ctx context.Context) {
	for last := time.Now(); ctx.Err() == nil; last = time.Now() {
		time.Sleep(10 * time.Millisecond)
		if time.Since(last) > starvation {
			l.mu.Lock()
			l.starved = append(l.starved, time.Now())
			l.mu.Unlock()
		}
	}
}

// hungry reports whether that was so while a call waited. The caller has the mutex.
func (l *load) hungry() bool {
	return len(l.starved) > 0 && time.Since(l.starved[len(l.starved)-1]) < patience+starvation
}

// anew connects, says something and hears it, again and again.
func (l *load) anew(ctx context.Context, c caller) {
	pause := time.NewTicker(36 * time.Millisecond)
	defer pause.Stop()
	for ctx.Err() == nil {
		took, err := l.once(ctx, c)
		l.note(&l.asked, took, err, "new from %s to %s", c.name, c.to)
		<-pause.C
	}
}

func (l *load) once(ctx context.Context, c caller) (time.Duration, error) {
	began := time.Now()
	limited, cancel := context.WithDeadline(context.WithoutCancel(ctx), began.Add(patience))
	defer cancel()
	conn, err := c.dial(limited, c.over("tcp"), c.to)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(began.Add(patience))
	return time.Since(began), say(conn)
}

// keep says something on one connection for as long as it may.
func (l *load) keep(ctx context.Context, c caller) {
	limited, cancel := context.WithTimeout(ctx, patience)
	conn, err := c.dial(limited, c.over("tcp"), c.to)
	cancel()
	if err != nil {
		l.note(&l.kept, 0, err, "to keep, from %s to %s", c.name, c.to)
		return
	}
	defer conn.Close()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		_ = conn.SetDeadline(began.Add(patience))
		err := say(conn)
		l.note(&l.kept, time.Since(began), err, "kept, from %s to %s", c.name, c.to)
		if err != nil {
			return
		}
		<-pause.C
	}
}

// stream sends datagrams and listens for answers. One that is lost is no failure, as
// any may be: silence is.
func (l *load) stream(ctx context.Context, c caller) {
	limited, cancel := context.WithTimeout(ctx, patience)
	conn, err := c.dial(limited, c.over("udp"), c.to)
	cancel()
	if err != nil {
		l.note(&l.kept, 0, err, "a stream from %s to %s", c.name, c.to)
		return
	}
	defer conn.Close()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	heard, said := time.Now(), make([]byte, 64)
	for ctx.Err() == nil {
		_, _ = conn.Write([]byte("points")) // what the one before came to
		_ = conn.SetReadDeadline(time.Now().Add(15 * time.Millisecond))
		if _, err := conn.Read(said); err == nil {
			l.note(&l.kept, time.Since(heard), nil, "")
			heard = time.Now()
		} else if time.Since(heard) > patience {
			l.note(&l.kept, 0, errors.New("silence"), "a stream from %s to %s", c.name, c.to)
			return
		}
		<-pause.C
	}
}

// A kept connection is one that a caller has, and has been heard on.
type kept struct {
	net.Conn
	name string
}

// keep is a connection of c's.
func (n *node) keep(c caller) *kept {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), long)
	defer cancel()
	conn, err := c.dial(ctx, c.over("tcp"), c.to)
	if err != nil {
		n.Fatal(err)
	}
	k := &kept{conn, fmt.Sprintf("from %s to %s", c.name, c.to)}
	if err := k.say(); err != nil {
		n.Fatal(k.name, err)
	}
	return k
}

// say says something on it, and hears it, however long that takes: it is there, or not.
func (k *kept) say() error {
	_ = k.SetDeadline(time.Now().Add(long))
	return say(k)
}

func say(conn net.Conn) error {
	if _, err := conn.Write([]byte("points")); err != nil {
		return err
	}
	heard := make([]byte, 6)
	_, err := io.ReadFull(conn, heard)
	if err == nil && string(heard) != "points" {
		err = fmt.Errorf("heard %q", heard)
	}
	return err
}

func (l *load) note(count *int, took time.Duration, err error, format string, args ...any) {
	if err != nil {
		time.Sleep(starvation) // what kept this caller from running may have kept watch too
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.hungry() {
		l.unheard++
		return
	}
	if err != nil {
		l.failed = append(l.failed, fmt.Sprintf("%s after %.3f s: %v", fmt.Sprintf(format, args...), time.Since(l.began).Seconds(), short(err)))
		return
	}
	*count++
	l.worst = max(l.worst, took)
	if count == &l.kept {
		l.stall = max(l.stall, took)
	}
}

func short(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// done ends the load, and holds it to having lost nothing.
func (l *load) done(what string) {
	l.t.Helper()
	failed := l.end()
	if l.excused {
		failed = nil
	}
	seconds := time.Since(l.began).Seconds()
	silence := l.observer.silence(l.t)
	l.t.Logf("%s: %d new connections (%.0f/s) and %d answers on kept ones in %.1f s: %d failed; longest answer %s, on a kept one %s, observed %s",
		what, l.asked, float64(l.asked)/seconds, l.kept, seconds, len(failed), l.worst.Round(time.Millisecond), l.stall.Round(time.Millisecond), silence)
	measured.load(what, l.asked, int(float64(l.asked)/seconds), len(failed), silence, l.stall, l.worst)
	if len(l.starved) > 0 {
		l.t.Logf("the callers themselves were starved %d times, and %d calls were cut short by it", len(l.starved), l.unheard)
	}
	if said := evidence(failed); said != "" {
		l.t.Log(said)
	}
	slices.Sort(failed)
	for i, text := range failed {
		if i == 10 {
			l.t.Errorf("… and %d more", len(failed)-i)
			break
		}
		l.t.Error(text)
	}
}
