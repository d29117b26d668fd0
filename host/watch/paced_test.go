// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A letterbox is a connection into which a test puts what is to be read.
type letterbox struct {
	net.Conn
	mu     sync.Mutex // guards what follows
	mail   bytes.Buffer
	closed bool
	come   chan struct{} // holds a token: something changed
}

func (l *letterbox) put(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mail.Write(make([]byte, n))
	l.ring()
}

func (l *letterbox) ring() {
	select {
	case l.come <- struct{}{}:
	default:
	}
}

func (l *letterbox) Read(b []byte) (int, error) {
	for {
		l.mu.Lock()
		n, _ := l.mail.Read(b)
		closed := l.closed
		l.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case closed:
			return 0, io.EOF
		}
		<-l.come
	}
}

func (l *letterbox) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.ring()
	return nil
}

// A step is a read: when it returned, and how much.
type step struct {
	at    time.Duration
	bytes int
}

// read reads a paced connection, while put fills it, until it is closed.
func read(t *testing.T, pause time.Duration, put func(*letterbox)) (steps []step) {
	synctest.Test(t, func(*testing.T) {
		began, box := time.Now(), &letterbox{come: make(chan struct{}, 1)}
		p := pace(box, func() time.Duration { return pause })
		done := make(chan struct{})
		go func() { // ends when p is closed
			defer close(done)
			room := make([]byte, 4<<10)
			for {
				n, err := p.Read(room)
				if err != nil {
					return
				}
				steps = append(steps, step{time.Since(began), n})
			}
		}()
		put(box)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return steps
}

const oneEvent = 400 // bytes

// TestPacedMany: of hundreds of events in a second several are read in one step, and none waits
// longer than the pause.
func TestPacedMany(t *testing.T) {
	const pause, between, events = 100 * time.Millisecond, 10 * time.Millisecond, 500
	steps := read(t, pause, func(box *letterbox) {
		for range events {
			box.put(oneEvent)
			time.Sleep(between)
		}
		time.Sleep(pause)
	})
	got, wakes := 0, 0
	for i, s := range steps {
		if i == 0 || s.at > steps[i-1].at {
			wakes++
		}
		if last := time.Duration((got+s.bytes-1)/oneEvent) * between; s.at > last+pause {
			t.Fatalf("what came after %s was read after %s", last, s.at)
		}
		got += s.bytes
	}
	if most := pacedBurst + int(events*between/pause) + int(pacedRate*(events*between).Seconds()) + 1; wakes > most || got != events*oneEvent {
		t.Errorf("%d of %d bytes were read at %d times, want at most %d", got, events*oneEvent, wakes, most)
	}
}

// TestPacedFew: what comes after a quiet time is read at once, also as often as a handshake needs.
func TestPacedFew(t *testing.T) {
	var put []time.Duration
	steps := read(t, 100*time.Millisecond, func(box *letterbox) {
		began := time.Now()
		for range 3 {
			for range pacedBurst {
				time.Sleep(time.Millisecond)
				put = append(put, time.Since(began))
				box.put(oneEvent)
			}
			time.Sleep(pacedBurst / pacedRate * time.Second)
		}
	})
	for i, s := range steps {
		if s.at != put[i] {
			t.Errorf("what came after %s was read after %s", put[i], s.at)
		}
	}
	if len(steps) != 3*pacedBurst {
		t.Errorf("%d reads", len(steps))
	}
}

// TestPacedMuch: a list that comes in pieces is not held up.
func TestPacedMuch(t *testing.T) {
	const pieces, between = 1000, 10 * time.Millisecond
	steps := read(t, 100*time.Millisecond, func(box *letterbox) {
		for range pieces {
			box.put(pacedMuch)
			time.Sleep(between)
		}
	})
	got := 0
	for _, s := range steps {
		got += s.bytes
		if last := time.Duration((got-1)/pacedMuch) * between; s.at != last {
			t.Fatalf("what came after %s was read after %s", last, s.at)
		}
	}
	if got != pieces*pacedMuch {
		t.Errorf("%d bytes were read", got)
	}
}

// TestPacedClosed: a connection that is closed waits no longer, and one without a pause never does.
func TestPacedClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := &letterbox{come: make(chan struct{}, 1)}
		pause := time.Duration(0)
		p := pace(box, func() time.Duration { return pause })
		began, room := time.Now(), make([]byte, 4<<10)
		take := func() error {
			box.put(oneEvent)
			_, err := p.Read(room)
			return err
		}
		for range 10 * pacedBurst {
			if err := take(); err != nil || time.Since(began) > 0 {
				t.Fatalf("without a pause it waited for %s: %v", time.Since(began), err)
			}
		}
		pause = time.Hour
		for range pacedBurst {
			if err := take(); err != nil || time.Since(began) > 0 {
				t.Fatalf("at first it waited for %s: %v", time.Since(began), err)
			}
		}
		time.AfterFunc(time.Second, func() { p.Close() })
		if _, err := p.Read(room); err != io.EOF || time.Since(began) != time.Second {
			t.Errorf("closed, it returned after %s: %v", time.Since(began), err)
		}
	})
}
