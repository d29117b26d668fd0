// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
)

// The ports of the Service.
const (
	frontend     = "127.91.0.10:7780" // answers with the address of the endpoint
	echoFrontend = "127.91.0.10:7790" // sends back what it receives
)

// callTimeout limits one request. wine's server sometimes keeps a connection of a killed process open, and the client
// would wait forever.
const callTimeout = time.Minute

var endpoints = []string{"127.91.1.1", "127.91.1.2", "127.91.1.3"}

// manifest returns the manifests of the Service and of an EndpointSlice with the given endpoints.
func manifest(endpoints ...string) string {
	text := `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 127.91.0.10
  ports: [{name: http, port: 7780, targetPort: 7781}, {name: echo, port: 7790, targetPort: 7791}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 7781}, {name: echo, port: 7791}]
endpoints:
`
	for _, e := range endpoints {
		text += fmt.Sprintf("- addresses: [%s]\n", e)
	}
	return text
}

// serveEndpoints listens at both ports of each endpoint until the test ends.
func serveEndpoints(t *testing.T) {
	t.Helper()
	for _, e := range endpoints {
		listen(t, e+":7781", func(conn net.Conn) { _, _ = io.WriteString(conn, e) })
		listen(t, e+":7791", func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
	}
}

// listen calls answer for each connection to addr, and then closes the connection.
func listen(t *testing.T, addr string, answer func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer conn.Close()
				answer(conn)
			}()
		}
	}()
}

// echo sends text, and waits until the endpoint has sent it back.
func echo(conn net.Conn, text string) error {
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(conn, back); err != nil || string(back) != text {
		return fmt.Errorf("the endpoint sent %q back, not %q: %w", back, text, err)
	}
	return nil
}

// calls sends requests to the Service, one after another, and counts the answers.
type calls struct {
	stop chan struct{}
	done chan struct{} // closed after the last request

	mu     sync.Mutex     // guards what follows
	since  time.Time      // requests that started earlier are not counted
	by     map[string]int // number of answers by endpoint
	failed []error
}

// startCalls sends requests until the test ends.
func startCalls(t *testing.T) *calls {
	c := &calls{stop: make(chan struct{}), done: make(chan struct{}), by: make(map[string]int)}
	go func() {
		defer close(c.done)
		for {
			started := time.Now()
			by, err := request()
			c.count(started, by, err)
			select {
			case <-c.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(c.stop)
		<-c.done
	})
	return c
}

// request sends one request, and returns the endpoint that answers.
func request() (string, error) {
	conn, err := net.DialTimeout("tcp4", frontend, callTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && !slices.Contains(endpoints, string(answer)) {
		err = fmt.Errorf("the answer %q is no endpoint", answer)
	}
	return string(answer), err
}

func (c *calls) count(started time.Time, by string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case started.Before(c.since):
	case err != nil:
		c.failed = append(c.failed, fmt.Errorf("after %v: %w", time.Since(started).Round(time.Millisecond), err))
	default:
		c.by[by]++
	}
}

// reset discards the results so far, and those of a request that has already started.
func (c *calls) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since, c.by, c.failed = time.Now(), make(map[string]int), nil
}

// take returns the results since the last take or reset.
func (c *calls) take() (by map[string]int, failed []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by, failed = c.by, c.failed
	c.by, c.failed = make(map[string]int), nil
	return by, failed
}

// answered waits until each of the given endpoints has answered five times without an answer of another endpoint
// between. It fails if a request has failed since the last call of answered or reset.
func (c *calls) answered(t *testing.T, by ...string) {
	t.Helper()
	got := make(map[string]int)
	eventually.SucceedsWithin(t, limit, fmt.Sprintf("only %v answer", by), func() error {
		now, failed := c.take()
		if len(failed) > 0 {
			return eventually.Final(fmt.Errorf("%d requests failed: %w", len(failed), failed[0]))
		}
		for e, n := range now {
			got[e] += n
			if !slices.Contains(by, e) {
				clear(got)
				return fmt.Errorf("%s answers", e)
			}
		}
		for _, e := range by {
			if got[e] < 5 {
				return fmt.Errorf("want at least 5 answers of each endpoint: %v", got)
			}
		}
		return nil
	})
	t.Logf("answered: %v, 0 failed", got)
}
