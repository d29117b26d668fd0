// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

// TestKernelHostKilledAtRandom kills the host at a random moment of each of several swaps. The next host brings the mode
// that was asked for, and no connection fails meanwhile.
func TestKernelHostKilledAtRandom(t *testing.T) {
	n := newNode(t, "iptables")
	n.drain = time.Second
	n.mode("iptables")
	n.start()
	l := n.newLoad()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 42))
	for i := range 2 * rounds() {
		to := []string{"nftables", "iptables"}[i%2]
		if _, err := n.SwapMode(t.Context(), admin.SwapAsk{To: to}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(random.Int64N(int64(1500 * time.Millisecond)))) // the random moment
		if err := n.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.gone(long)
		n.start()
		n.until(to+" serves, which was asked for", long, n.serves(to))
	}
	m := n.rested()
	l.done("a host that is killed at a random moment of each swap")
	for _, mode := range modes {
		if mode != m.Mode {
			n.traceless(mode)
		}
	}
}
