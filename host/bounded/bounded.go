// SPDX-License-Identifier: Apache-2.0

/*
Package bounded reads files that may not be what they seem: a pipe with no writer,
a device, a link into /proc, a file that grows without end, or one on a network file
system whose server is gone. ReadFile refuses all but regular files of a limited
size. A Caller makes calls that may never return, and waits for them only so long.
*/
package bounded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// stallLimit bounds a read of what can be polled; a regular file of a disk cannot be.
const stallLimit = 5 * time.Second

// ReadFile reads the regular file at name, of at most limit bytes. It waits for no
// other process, but for the file system: where that may hang, see ReadFileWithin and
// Caller. The error says why without naming the file.
func ReadFile(name string, limit int64) ([]byte, error) {
	before, err := os.Stat(name) // to open a device may do something
	if err != nil {
		return nil, bare(err)
	}
	if err := ordinary(before, limit); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, bare(err)
	}
	defer file.Close()
	opened, err := file.Stat()
	if err != nil {
		return nil, bare(err)
	}
	if err := ordinary(opened, limit); err != nil {
		return nil, err
	}
	if kind := pseudo(file); kind != "" {
		return nil, fmt.Errorf("it lies in %s, whose files are no ordinary ones", kind)
	}
	_ = file.SetReadDeadline(time.Now().Add(stallLimit))
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, bare(err)
	}
	if int64(len(data)) > limit {
		return nil, tooLarge(limit)
	}
	return data, nil
}

// ReadFileWithin is ReadFile for one call with a deadline. When it passes, the
// goroutine that reads is left to end when the file system answers.
func ReadFileWithin(name string, limit int64, timeout time.Duration) ([]byte, error) {
	type answer struct {
		data []byte
		err  error
	}
	var c Caller[string, answer]
	a, ok := c.Do(name, timeout, func() answer {
		data, err := ReadFile(name, limit)
		return answer{data, err}
	})
	if !ok {
		return nil, fmt.Errorf("the file system did not answer within %s", timeout)
	}
	return a.data, a.err
}

// ordinary says why the file that info tells of is not read.
func ordinary(info os.FileInfo, limit int64) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("it is no ordinary file but a %s", kindOf(info.Mode()))
	case info.Size() > limit:
		return tooLarge(limit)
	}
	return nil
}

func tooLarge(limit int64) error { return fmt.Errorf("it is larger than %d MiB", limit>>20) }

func kindOf(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "folder"
	case mode&os.ModeNamedPipe != 0:
		return "pipe"
	case mode&os.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// bare is err without the operation and the name, which the caller puts in front.
func bare(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

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
