// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"
)

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
