// SPDX-License-Identifier: Apache-2.0

package bounded

import "time"

// A Caller makes calls that may never return, at most one at a time for each key. It
// is for one goroutine; the zero value is ready for use.
type Caller[K comparable, T any] struct {
	waiting map[K]*call[T]
	timer   *time.Timer
}

// A call runs, or has an answer that nothing has asked for yet.
type call[T any] struct {
	begun  time.Time
	answer chan T // of one
}

// Do returns what f returns if that is within timeout. Otherwise the call goes on,
// and the next Do of the same key waits for its answer instead of calling f again.
func (c *Caller[K, T]) Do(key K, timeout time.Duration, f func() T) (answer T, ok bool) {
	w := c.waiting[key]
	if w == nil {
		w = &call[T]{begun: time.Now(), answer: make(chan T, 1)}
		go func() { w.answer <- f() }() // ends when f returns
	}
	if c.timer == nil {
		c.timer = time.NewTimer(timeout)
	} else {
		c.timer.Reset(timeout)
	}
	defer c.timer.Stop()
	select {
	case answer = <-w.answer:
		delete(c.waiting, key)
		return answer, true
	case <-c.timer.C:
	}
	if c.waiting == nil {
		c.waiting = make(map[K]*call[T])
	}
	c.waiting[key] = w
	return answer, false
}

// Waiting returns how many calls had no answer in time.
func (c *Caller[K, T]) Waiting() int { return len(c.waiting) }

// Since returns when the call of key began that has had no answer; zero: there is none.
func (c *Caller[K, T]) Since(key K) time.Time {
	if w := c.waiting[key]; w != nil {
		return w.begun
	}
	return time.Time{}
}

// Forget stops waiting for the call of key.
func (c *Caller[K, T]) Forget(key K) { delete(c.waiting, key) }
