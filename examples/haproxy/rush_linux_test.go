// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// endpoint serves TCP at an address until the test ends. It greets with its address, and echoes.
func endpoint(t *testing.T, ip string) {
	t.Helper()
	l, err := net.Listen("tcp4", ip+":19000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with l
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go func() { // ends with conn
					defer conn.Close()
					fmt.Fprintln(conn, ip)
					_, _ = io.Copy(conn, conn)
				}()
			}
		}
	}()
}

// call opens a connection, from an address if one is given, and returns which endpoint greets.
func call(from, to string) (net.Conn, string, error) {
	d := net.Dialer{Timeout: long}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := d.Dial("tcp4", to)
	if err != nil {
		return nil, "", err
	}
	_ = conn.SetDeadline(time.Now().Add(long))
	by, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
	if err != nil {
		_ = conn.Close()
		return nil, "", err
	}
	return conn, strings.TrimSpace(by), nil
}

// answers waits until a call is answered by one of these endpoints.
func (n *node) answers(to string, by ...string) {
	n.Helper()
	n.until(to+" answers", func() error {
		conn, got, err := call("", to)
		if err == nil {
			_ = conn.Close()
			if !slices.Contains(by, got) {
				err = fmt.Errorf("answered by %s, want one of %v", got, by)
			}
		}
		return err
	})
}

// A rush opens connections all the time.
type rush struct {
	stop func()

	mu     sync.Mutex // guards what follows
	count  int
	failed []error
}

// newRush begins four callers of an address, which end with stop, or the test.
func newRush(t *testing.T, to string) *rush {
	r := new(rush)
	done := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
				}
				conn, _, err := call("", to)
				if err == nil {
					_ = conn.Close()
				}
				r.note(err)
			}
		})
	}
	r.stop = sync.OnceFunc(func() { close(done); all.Wait() })
	t.Cleanup(r.stop)
	return r
}

func (r *rush) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	if err != nil {
		r.failed = append(r.failed, fmt.Errorf("%s: %w", time.Now().Format("15:04:05.000"), err))
	}
}

// more waits until some more calls were answered.
func (r *rush) more(n *node, some int) {
	n.Helper()
	r.mu.Lock()
	until := r.count + some
	r.mu.Unlock()
	n.until("calls are answered", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.count < until {
			return fmt.Errorf("%d more", until-r.count)
		}
		return nil
	})
}

// end ends it, and returns how many calls there were. None may have failed.
func (r *rush) end(t *testing.T) int {
	t.Helper()
	r.stop()
	if len(r.failed) > 0 || r.count == 0 {
		t.Errorf("of %d calls %d failed: %v", r.count, len(r.failed), errors.Join(r.failed[:min(5, len(r.failed))]...))
	}
	return r.count
}
