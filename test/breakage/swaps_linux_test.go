// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

// ofSwaps are those of changes of the mode.
var ofSwaps = []fault{
	{name: "swap-there-and-back", do: thereAndBack},
	{name: "swap-asked-and-reset", do: askedAndReset},
	{name: "swap-struck-at-a-stage", can: failpoints, do: struckAtStage},
	{name: "swap-struck-at-any-time", do: struckAtAnyTime},
}

// failpoints reports whether the host has points at which a swap can be made to wait.
func failpoints(*node) bool { return hasFailpoints() }

var hasFailpoints = sync.OnceValue(func() bool {
	dir, err := binaries()
	if err != nil {
		return false
	}
	host, err := os.ReadFile(dir + "/pointsman")
	return err == nil && bytes.Contains(host, []byte("failpoint reached:"))
})

// places are the points of a swap at which its course may change.
var places = []string{
	"preflight/launch", "staging/record", "staging/fill", "verifying/verify", "holding/record", "holding/hold",
	"cutting/record", "cutting/promote", "cutting/retire", "cutting/release", "proving/prove", "draining/drain", "clearing/clear", "clearing/stop",
}

// thereAndBack swaps, and back at once while the one that left drains.
func thereAndBack(n *node) {
	from := n.mode
	n.swap(n.other())
	time.Sleep(time.Duration(n.IntN(1500)) * time.Millisecond)
	n.swap(from)
}

// askedAndReset asks for a swap, and for the mode of the file again.
func askedAndReset(n *node) {
	to := n.other()
	if _, err := n.SwapMode(n.Context(), admin.SwapAsk{To: to}); err != nil {
		n.Errorf("mode swap %s: %v", to, err)
	}
	time.Sleep(time.Duration(n.IntN(2000)) * time.Millisecond)
	if out, err := n.verb("mode", "reset"); err != nil {
		n.Errorf("mode reset: %v: %s", err, out)
	}
	n.resolved()
}

// A strike is a signal to one of those that take part in a swap.
type strike struct {
	victim string // host, new, old
	sig    syscall.Signal
}

func (s strike) String() string { return s.victim + " by " + s.sig.String() }

// strikes are all of them.
func (n *node) strike() strike {
	all := []strike{
		{"host", syscall.SIGKILL}, {"host", syscall.SIGTERM}, {"host", syscall.SIGINT},
		{"new", syscall.SIGKILL}, {"old", syscall.SIGKILL}, {"new", syscall.SIGTERM}, {"new", syscall.SIGSTOP}, {"old", syscall.SIGSTOP},
	}
	return all[n.IntN(len(all))]
}

// strikes sends the signal. A host that it ended is followed by the next one.
func (n *node) strikes(s strike, from, to string) {
	n.Helper()
	switch s.victim {
	case "new":
		n.kill(to, s.sig)
	case "old":
		n.kill(from, s.sig)
	case "host":
		if len(n.plugins("userspace")) > 0 { // it ends with its host
			n.relayGone()
		}
		n.end(s.sig)
		n.begin()
	}
}

// struckAtStage strikes while a swap waits at one of its points.
func struckAtStage(n *node) {
	from, to, at, s := n.mode, n.other(), places[n.IntN(len(places))], n.strike()
	n.step("  at %s to %s: %s", at, to, s)
	n.write("gate", "")
	if len(n.plugins("userspace")) > 0 {
		n.relayGone()
	}
	n.end(syscall.SIGTERM)
	n.begin("POINTSMAN_FAIL="+at+"=wait", "POINTSMAN_FAIL_GATE="+n.path("gate"))
	n.until("the host serves", long, n.served)
	before := strings.Count(n.read("host.log"), "failpoint reached: "+at)
	n.configure(to)
	n.until("the swap is at "+at, long, func() error {
		if strings.Count(n.read("host.log"), "failpoint reached: "+at) == before {
			return errors.New("not yet")
		}
		return nil
	})
	if s.victim == "host" { // which still waits when the signal comes
		time.AfterFunc(time.Duration(n.IntN(2000))*time.Millisecond, func() { _ = os.Remove(n.path("gate")) })
	}
	n.strikes(s, from, to)
	_ = os.Remove(n.path("gate"))
	n.resolved()
}

// struckAtAnyTime strikes some time after a swap has begun.
func struckAtAnyTime(n *node) {
	from, to, s, after := n.mode, n.other(), n.strike(), time.Duration(n.IntN(2500))*time.Millisecond
	n.step("  to %s: %s after %s", to, s, after)
	n.configure(to)
	time.Sleep(after)
	n.strikes(s, from, to)
	n.resolved()
}

// resolved waits until the swap has come to its end, and has the config file say which
// mode serves.
func (n *node) resolved() {
	n.Helper()
	var serves string
	began, still := time.Now(), time.Now()
	n.until("no swap is under way", 2*long, func() error {
		m, err := n.Mode(context.Background())
		if err == nil && m.Swap != nil {
			err = fmt.Errorf("%+v", *m.Swap)
		}
		if err == nil {
			err = n.served()
		}
		if err != nil || m.Mode != serves {
			still = time.Now()
		}
		if serves = m.Mode; err == nil && time.Since(still) < time.Second && serves != n.mode { // a next try may begin
			err = fmt.Errorf("%s serves, and the file has %s", serves, n.mode)
		}
		return err
	})
	if serves != n.mode {
		n.step("  %s serves in the end, after %s", serves, time.Since(began).Round(time.Millisecond))
		n.configure(serves)
		time.Sleep(3 * time.Second) // until the host has read that
	}
}
