// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestHostIsNotRun: where the host has to wait for a processor, the canary is
// waited for, for as long as six times what it may take.
func TestHostIsNotRun(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("needs a kernel that counts how long threads wait: ", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3 * runtime.NumCPU()))
	var stop atomic.Bool
	defer stop.Store(true)
	for range 3 * runtime.NumCPU() {
		go func() { // ends with stop
			for !stop.Load() {
			}
		}()
	}
	time.AfterFunc(2*time.Second, func() { answer(l) }) // ends with the listener
	c := &Canary{}
	to := target{onNode, netip.MustParseAddrPort(l.Addr().String())}
	if err := probe(t.Context(), to, 1, c.timeout(time.Second)); err != nil {
		t.Error(err)
	}
}
