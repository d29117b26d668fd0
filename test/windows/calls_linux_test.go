// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/traffic"
)

// The ports of the Service.
const (
	frontend     = "127.91.0.10:7780" // answers with the address of the endpoint
	echoFrontend = "127.91.0.10:7790" // sends back what it receives
)

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

// calls sends requests to the Service, one after another, and counts the answers.
type calls struct {
	*traffic.Load
	since time.Time // requests that started earlier may have failed

	mu sync.Mutex     // guards by
	by map[string]int // number of answers by endpoint
}

// client returns a client of the Service that hands the name of each endpoint that answers to answered.
func client(answered func(endpoint string)) traffic.Caller {
	dial := func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, to.String())
	}
	return traffic.Caller{Name: "a client", Dial: dial, To: netip.MustParseAddrPort(frontend), Ask: func(conn net.Conn) error {
		answer, err := io.ReadAll(conn)
		if err == nil && !slices.Contains(endpoints, string(answer)) {
			err = fmt.Errorf("the answer %q is no endpoint", answer)
		}
		if err == nil {
			answered(string(answer))
		}
		return err
	}}
}

// startCalls sends requests until the test ends.
func startCalls(t *testing.T) *calls {
	c := &calls{by: make(map[string]int)}
	c.Load = traffic.Start(traffic.Plan{New: 1, Every: 20 * time.Millisecond}, client(func(endpoint string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.by[endpoint]++
	}))
	t.Cleanup(func() { c.End() })
	return c
}

// request sends one request.
func request() error {
	_, err := client(func(string) {}).Once(context.Background())
	return err
}

// reset excuses the failures so far, and that of a request that has already started.
func (c *calls) reset() { c.since = time.Now() }

// answered waits until each of the given endpoints has answered five times without an answer of another endpoint
// between. It fails if a request has failed that started after the last call of reset.
func (c *calls) answered(t *testing.T, by ...string) {
	t.Helper()
	c.mu.Lock()
	clear(c.by)
	c.mu.Unlock()
	eventually.SucceedsWithin(t, limit, fmt.Sprintf("only %v answer", by), func() error {
		for _, f := range c.Sofar().Failed {
			if f.Began.After(c.since) {
				return eventually.Final(fmt.Errorf("a request failed: %s", f))
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for e := range c.by {
			if !slices.Contains(by, e) {
				clear(c.by)
				return fmt.Errorf("%s answers", e)
			}
		}
		for _, e := range by {
			if c.by[e] < 5 {
				return fmt.Errorf("want at least 5 answers of each endpoint: %v", c.by)
			}
		}
		return nil
	})
	t.Logf("%v answered, 0 failed", by)
}
