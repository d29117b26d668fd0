// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/relaytest"
)

// TestWaitingIsServed: connections that wait in a listener when it is closed are carried, as those
// before are: another process may listen at the same address by then, and no caller is to notice.
func TestWaitingIsServed(t *testing.T) {
	relaytest.NeedsLoopback(t)
	front, back := at(1, 8000), at(2, 8000)
	endpoint(t, back, echo)
	r := New()
	t.Cleanup(r.Stop)
	value := svc("web", "cluster-ip "+front, back)
	value.Normalize()
	socket, err := r.Listen(t.Context(), sdk.TCP, value.Frontends[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	var callers []*net.TCPConn
	for range 20 {
		c := dial(t, front)
		fmt.Fprint(c, "x")
		callers = append(callers, c)
	}
	socket.Serve(&Target{NewService(value), value.Frontends[0]})
	socket.Close()
	if open := r.Counts().Open(); open != len(callers) {
		t.Errorf("%d connections are open, want %d: a drain would not wait for them", open, len(callers))
	}
	for i, c := range callers {
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("caller %d: %v", i, err)
		}
	}
	if c, err := net.Dial("tcp", front); err == nil {
		c.Close()
		t.Error("one that calls when it is closed was accepted")
	}
}
