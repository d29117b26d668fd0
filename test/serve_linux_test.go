// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"
)

// TestTraffic sends requests through Services of manifests.
func TestTraffic(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	var ends []string
	for n := 1; n <= 3; n++ {
		backend(t, at(fmt.Sprintf("%s10%d", s.net, n)))
		ends = append(ends, at(fmt.Sprintf("%s10%d", s.net, n)))
	}
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101", "NET.102", "NET.103"))
	s.manifest("dns.yaml", serviceOf("dns", "NET.10", "UDP", 18080)+sliceOf("dns", "UDP", "NET.101", "NET.102"))
	s.manifest("empty.json", `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "empty", "namespace": "ns"},
		"spec": {"clusterIP": "`+s.net+`11", "ports": [{"port": 80}]}}`)
	s.start()
	s.serving()

	if got := callTimes(t, "tcp", s.net+"10:18080", 12); !slices.Equal(got, ends) {
		t.Errorf("TCP is answered by %q, want %q", got, ends)
	}
	if got := callTimes(t, "udp", s.net+"10:18080", 12); !slices.Equal(got, ends[:2]) {
		t.Errorf("UDP is answered by %q, want %q", got, ends[:2])
	}
	if from, err := ask("tcp", s.net+"11:80"); err == nil {
		t.Errorf("a Service without an endpoint is answered by %s", from)
	}
	s.manifest("new.yaml", tcpService("new", "NET.12", 18080, "NET.103"))
	s.served("tcp", s.net+"12:18080", ends[2])
	s.remove("services/new.yaml")
	s.until("a Service whose file was removed is not served", func() error {
		from, err := ask("tcp", s.net+"12:18080")
		if err == nil {
			return fmt.Errorf("answered by %s", from)
		}
		return nil
	})
}

// TestEndpointIsRemoved removes an endpoint while requests run: none fails, established connections stay, and no new
// one goes there.
func TestEndpointIsRemoved(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	backend(t, at(s.net+"102"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101", "NET.102"))
	s.start()
	s.serving()
	addr, going := s.net+"10:18080", at(s.net+"102")

	var kept net.Conn
	for kept == nil {
		conn, from, err := connect("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if from == going {
			kept = conn
		} else {
			conn.Close()
		}
	}
	defer kept.Close()

	r := newClients(t, addr)
	r.more(s, 50)
	before, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.until("the change is confirmed", func() error {
		now, err := s.Status(t.Context())
		if err == nil && (now.Sync.Acked <= before.Sync.Acked || now.Sync.Pending > 0) {
			err = fmt.Errorf("sync %+v", now.Sync)
		}
		return err
	})
	confirmed := time.Now()
	r.more(s, 100)
	if last := r.lastCall(going); last.After(confirmed) {
		t.Errorf("a request that was sent %s after the change was confirmed went to the endpoint", last.Sub(confirmed))
	}
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101", "NET.102"))
	s.until("the endpoint is asked again", func() error {
		if !r.lastCall(going).After(confirmed) {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	r.Done(t, "an endpoint removed and added")
	_ = kept.SetDeadline(time.Now().Add(timeout))
	if _, err := fmt.Fprintln(kept, "still there?"); err != nil {
		t.Errorf("the established connection: %v", err)
	}
	if line, err := bufio.NewReader(kept).ReadString('\n'); err != nil || line != "still there?\n" {
		t.Errorf("the established connection answers %q, %v", line, err)
	}
}
