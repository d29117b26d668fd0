// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// A client or endpoint that has closed its side still receives.
func TestHalfClose(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	t.Run("the client closes first", func(t *testing.T) {
		endpoint(t, back, func(c *net.TCPConn) {
			all, _ := io.ReadAll(c)
			fmt.Fprintf(c, "heard %d", len(all))
		})
		serve(t, svc("web", "cluster-ip "+front, back))
		c := dial(t, front)
		fmt.Fprint(c, "12345")
		c.CloseWrite()
		if got, err := io.ReadAll(c); string(got) != "heard 5" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("the endpoint closes first", func(t *testing.T) {
		heard := make(chan string, 1)
		endpoint(t, at(3, 8000), func(c *net.TCPConn) {
			fmt.Fprint(c, "that is all")
			c.CloseWrite()
			all, _ := io.ReadAll(c)
			heard <- string(all)
		})
		serve(t, svc("web", "cluster-ip "+front, at(3, 8000)))
		c := dial(t, front)
		if got, err := io.ReadAll(c); string(got) != "that is all" {
			t.Errorf("%q, %v", got, err)
		}
		fmt.Fprint(c, "thank you")
		c.Close()
		if got := <-heard; got != "thank you" {
			t.Errorf("the endpoint received %q", got)
		}
	})
}

// A reset by one peer is passed on to the other.
func TestReset(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	t.Run("the endpoint", func(t *testing.T) {
		endpoint(t, back, func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.SetLinger(0)
		})
		serve(t, svc("web", "cluster-ip "+front, back))
		c := dial(t, front)
		fmt.Fprint(c, "x")
		if _, err := c.Read(make([]byte, 1)); !wasReset(err) {
			t.Errorf("the client sees %v", err)
		}
	})
	t.Run("the client", func(t *testing.T) {
		seen := make(chan error, 1)
		endpoint(t, at(3, 8000), func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 1))
			fmt.Fprint(c, "x")
			_, err := c.Read(make([]byte, 1))
			seen <- err
		})
		serve(t, svc("web", "cluster-ip "+front, at(3, 8000)))
		c := dial(t, front)
		fmt.Fprint(c, "x")
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
		c.Close()
		if err := <-seen; !wasReset(err) {
			t.Errorf("the endpoint sees %v", err)
		}
	})
}

// All bytes arrive, in both directions at once.
func TestBulk(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	endpoint(t, back, echo)
	s := serve(t, svc("web", "cluster-ip "+front, back))
	const size = 32 << 20
	c := dial(t, front)
	said, heard := sha256.New(), sha256.New()
	var saying sync.WaitGroup
	saying.Go(func() {
		_, _ = io.Copy(io.MultiWriter(c, said), io.LimitReader(rand.NewChaCha8([32]byte{1}), size))
		c.CloseWrite()
	})
	n, err := io.Copy(heard, c)
	saying.Wait()
	if n != size || err != nil || !sameSum(said, heard) {
		t.Errorf("of %d bytes %d came back (%v), same: %v", size, n, err, sameSum(said, heard))
	}
	if in, out := s.Counters.BytesIn.Load(), s.Counters.BytesOut.Load(); in != size || out != size {
		t.Errorf("counted %d in and %d out", in, out)
	}
}

func sameSum(a, b hash.Hash) bool { return bytes.Equal(a.Sum(nil), b.Sum(nil)) }

// If an endpoint refuses, the next one is tried. With affinity the client keeps that one.
func TestNextEndpoint(t *testing.T) {
	for _, affinity := range []time.Duration{0, time.Hour} {
		t.Run(affinity.String(), func(t *testing.T) {
			front, back := at(1, 8000), at(3, 8000)
			endpoint(t, back, nil)
			web := svc("web", "cluster-ip "+front, at(2, 8000)+" "+back)
			web.Affinity = affinity
			s := serve(t, web)
			for range 10 {
				if got, err := ask(front); got != back {
					t.Fatalf("%q, %v", got, err)
				}
			}
			if n := s.Counters.DialErrors.Load(); affinity == 0 && n == 0 || affinity > 0 && n > 1 {
				t.Errorf("the endpoint that refuses was tried %d times", n)
			}
		})
	}
}

// If no endpoint accepts, the client is reset.
func TestNoneAnswers(t *testing.T) {
	front := at(1, 8000)
	serve(t, svc("web", "cluster-ip "+front, at(2, 8000)))
	if _, err := ask(front); !wasReset(err) {
		t.Errorf("the client sees %v", err)
	}
}

// A client whose route does not forward is reset.
func TestClientWithoutRoute(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	endpoint(t, back, nil)
	web := svc("web", "load-balancer "+front, back)
	web.Frontends[0].Sources = append(web.Frontends[0].Sources, sourceRange("198.18.0.0/15"))
	s := serve(t, web)
	if _, err := ask(front); !wasReset(err) || s.Counters.TurnedAway.Load() != 1 {
		t.Errorf("from a source that is not allowed: %v", err)
	}
	s.set(svc("web", "load-balancer "+front, back))
	finds(t, front, back)
}

// Established connections outlive their endpoint, their Service and their Socket. Stop closes them, and the Relay can be used
// again.
func TestEstablished(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	endpoint(t, back, echo)
	web := svc("web", "cluster-ip "+front, back)
	s := serve(t, web)
	c := dial(t, front)
	lives := func(when string) {
		t.Helper()
		fmt.Fprint(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	lives("at first")
	s.set(svc("web", "cluster-ip "+front, at(3, 8000)))
	lives("without its endpoint")
	s.remove(web)
	lives("without its Service")
	if _, err := ask(front); !wasRefused(err) {
		t.Errorf("the socket is still open: %v", err)
	}
	s.carries(1)
	s.Stop()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlives the relay")
	}
	s.carries(0)
	s.set(web)
	c = dial(t, front)
	lives("after Stop")
	c.Close()
	s.carries(0)
}
