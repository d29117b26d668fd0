// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestKernelNftablesTakeOver: on a node that kube-proxy serves in its nftables mode ours takes over,
// and gives back. Meanwhile no call fails, no connection ends, and nothing is left of the other.
func TestKernelNftablesTakeOver(t *testing.T) {
	t.Parallel()
	c := newContest(t, theirNftables)
	p := c.proxies[0]
	things := []thing{a(20, "web", spread(), samePort(30400), loadBalancer("198.51.100.30", "2001:db8:e::30"))}
	p.start(t, detected)
	c.write(things)
	c.settle()
	var kept held
	kept.add(c, things)
	failed := p.calledAllTheTime(t, things[0])

	p.succeeds(t, ourNftables)
	c.settle() // by what came after kube-proxy was stopped
	for _, family := range []string{"ip", "ip6"} {
		p.run(t, "nft", "delete", "table", family, "kube-proxy")
	}
	c.settle()
	kept.compare(c)

	p.succeeds(t, theirNftables)
	c.settle()
	p.run(t, filepath.Join(cluster.Binaries, "pointsman"), "cleanup", "--plugin-dir="+cluster.Binaries, "--admin-socket="+filepath.Join(p.dir, "own", "admin.sock"))
	c.settle()
	if tables := p.run(t, "nft", "list", "tables"); strings.Contains(tables, "pointsman") {
		t.Errorf("after cleanup there is\n%s", tables)
	}
	kept.compare(c)
	calls, why := failed()
	t.Logf("%d calls, %d failed", calls, len(why))
	if len(why) > 0 {
		t.Errorf("%d of %d calls failed, the first: %s", len(why), calls, why[0])
	}
	if len(kept) == 0 {
		t.Error("no connection was held")
	}
}

// TestKernelWayBack: kube-proxy takes a node over while the plugin of a host that was ended by SIGTERM is still there. The
// plugin leaves the rules to kube-proxy.
func TestKernelWayBack(t *testing.T) {
	t.Parallel()
	c := newContest(t, ourNft)
	p := c.proxies[0]
	p.start(t, detected)
	c.write([]thing{a(20, "web", spread(), samePort(30400))})
	c.settle()
	plugin := p.kept
	t.Cleanup(func() { _ = plugin.Stop() })
	if err := p.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	p.kind, p.kept = theirNft, nil
	p.start(t, detected)
	c.settle()
	said := func(what string) bool {
		log, err := os.ReadFile(p.log)
		return err == nil && strings.Contains(string(log), what)
	}
	eventually.True(t, "the plugin stands down", func() bool { return said("the host is gone, and another program has changed what this process wrote") })
	c.settle()
	if said("restored what another program removed") {
		t.Error("the plugin undid what kube-proxy wrote")
	}
}

// succeeds ends the process, whose rules stay, and starts one of another kind in its place.
func (p *proxy) succeeds(t testing.TB, k kind) {
	t.Helper()
	p.stop()
	p.kind = k
	p.start(t, p.set)
}

// calledAllTheTime has several callers call all frontends of a Service until the result is asked for:
// how many calls there were, and what became of those that failed.
func (p *proxy) calledAllTheTime(t testing.TB, to thing) (result func() (calls int64, failed []string)) {
	t.Helper()
	var mu sync.Mutex // guards failed
	var failed []string
	var calls atomic.Int64
	var callers sync.WaitGroup
	end := make(chan struct{})
	for _, from := range []caller{called("client"), called("near1"), called("node")} {
		callers.Go(func() { // ends with end
			for {
				for _, frontend := range to.targets() {
					select {
					case <-end:
						return
					case <-time.After(10 * time.Millisecond):
					}
					if !p.set.takesNodePorts(frontend.addr.Addr()) && strings.HasSuffix(frontend.way, "node-port") || strings.HasPrefix(frontend.way, "loopback") || strings.HasPrefix(frontend.way, "second") {
						continue
					}
					calls.Add(1)
					if answer := p.call(t.Context(), from, frontend, 3*time.Second); !strings.Contains(answer, " saw ") {
						mu.Lock()
						failed = append(failed, fmt.Sprintf("%s: %s ▶ %s: %s", time.Now().Format(time.TimeOnly), from.name, frontend, answer))
						mu.Unlock()
					}
				}
			}
		})
	}
	return func() (int64, []string) {
		close(end)
		callers.Wait()
		return calls.Load(), failed
	}
}
