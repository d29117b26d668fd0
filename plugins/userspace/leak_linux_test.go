// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// After Close no goroutine and no descriptor is left.
func TestLeaks(t *testing.T) {
	back := at(2, 8000)
	endpoint(t, back, echo)
	udpEndpoint(t, back)
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	for _, cleanUp := range []bool{false, true, false} {
		fullLife(t, back, cleanUp)
	}
	eventually(t, func() error { // the endpoints end later, and their pipes with a garbage collection
		runtime.GC()
		if n, m := runtime.NumGoroutine(), descriptors(t); n > goroutines || m > files {
			return fmt.Errorf("%d goroutines and %d descriptors more than before", n-goroutines, m-files)
		}
		return nil
	})
}

// fullLife uses each feature of a relay.
func fullLife(t *testing.T, back string, cleanUp bool) {
	front, away := at(1, 8000), at(4, 8000)
	s := onStage(t, svc("web", "cluster-ip "+front, back+" "+at(3, 8000)), udp(svc("dns", "cluster-ip "+front, back)))
	defer s.Close()
	for n := range 10 {
		c, u := dial(t, front), udpClient(t, front)
		defer c.Close()
		defer u.Close()
		fmt.Fprint(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		askUDP(t, u, "x")
		if n%2 == 0 {
			c.Close()
			u.Close()
		}
	}
	s.set(svc("web", "cluster-ip "+away, back))
	for _, r := range []sdk.Role{sdk.Draining, sdk.Active, sdk.Standby, sdk.Active} {
		s.role(r)
	}
	if !cleanUp {
		return
	}
	if _, err := s.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
}
