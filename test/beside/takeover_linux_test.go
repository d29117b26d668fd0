// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/traffic"
)

// TestKernelTakesOverFromKubeProxy: a dataplane takes over a node that kube-proxy serves in the mode of the same name,
// and kube-proxy takes back mode nftables. Meanwhile no call fails and no connection ends. A cleanup leaves nothing.
func TestKernelTakesOverFromKubeProxy(t *testing.T) {
	for _, c := range []struct{ theirs, ours kind }{{theirNftables, ourNftables}, {theirNft, ourNft}, {theirLegacy, ourLegacy}} {
		t.Run(c.ours.label, func(t *testing.T) {
			t.Parallel()
			takeOver(t, c.theirs, c.ours)
		})
	}
}

func takeOver(t *testing.T, theirs, ours kind) {
	c := newContest(t, theirs)
	p := c.proxies[0]
	things := []thing{newThing(20, "web", spread(), samePort(30400), loadBalancer("198.51.100.30", "2001:db8:e::30"))}
	p.start(t)
	c.write(things)
	c.settle()
	var kept openConnections
	kept.add(c, things)
	load := p.load(things[0])
	t.Cleanup(func() { load.End() })

	p.replaceWith(t, ours)
	c.settle() // by the proxy after kube-proxy
	if ours.mode == "nftables" {
		for _, family := range []string{"ip", "ip6"} {
			p.run(t, "nft", "delete", "table", family, "kube-proxy")
		}
		c.settle()
		kept.compare(c)
		p.replaceWith(t, theirs)
		c.settle()
		p.cleanup(t)
		c.settle()
		if tables := p.run(t, "nft", "list", "tables"); strings.Contains(tables, "pointsman") {
			t.Errorf("after cleanup there is\n%s", tables)
		}
	}
	kept.compare(c)
	load.Done(t, "another proxy took over and gave back")
	if len(kept) == 0 {
		t.Error("no connection was held")
	}

	p.stop()
	p.cleanup(t, "--kube-proxy")
	for _, program := range []string{"iptables", "ip6tables"} {
		if rules := strings.ReplaceAll(p.run(t, program+"-"+ours.backend+"-save"), "KUBE-IPTABLES-HINT", ""); strings.Contains(rules, "KUBE-") {
			t.Errorf("after the cleanup of kube-proxy's rules there are\n%s", rules)
		}
	}
	if tables := p.run(t, "nft", "list", "tables"); strings.Contains(tables, "kube-proxy") {
		t.Errorf("after the cleanup of kube-proxy's rules there are\n%s", tables)
	}
}

// cleanup removes what dataplanes left, with further flags of the verb.
func (p *proxy) cleanup(t *testing.T, flags ...string) {
	t.Helper()
	socket := filepath.Join(p.dir, "own", "admin.sock")
	p.run(t, filepath.Join(cluster.Binaries, "pointsman"), append([]string{"cleanup", "--plugin-dir=" + cluster.Binaries, "--admin-socket=" + socket}, flags...)...)
}

// TestKernelWayBack: kube-proxy takes a node over while the plugin of a host that SIGTERM has ended still runs. The
// plugin leaves the rules to kube-proxy.
func TestKernelWayBack(t *testing.T) {
	t.Parallel()
	c := newContest(t, ourNft)
	p := c.proxies[0]
	p.start(t)
	c.write([]thing{newThing(20, "web", spread(), samePort(30400))})
	c.settle()
	plugin := p.kept
	t.Cleanup(func() { _ = plugin.Stop() })
	if err := p.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	p.kind, p.kept = theirNft, nil
	p.start(t)
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

// replaceWith ends the process, whose rules stay, and starts a proxy of another kind in its place.
func (p *proxy) replaceWith(t testing.TB, k kind) {
	t.Helper()
	p.stop()
	p.kind = k
	p.start(t)
}

// load starts callers of all frontends of a Service by TCP.
func (p *proxy) load(to thing) *traffic.Load {
	var all []traffic.Caller
	for _, frontend := range to.targets() {
		if !strings.HasPrefix(frontend.network, "tcp") || strings.HasPrefix(frontend.way, "loopback") || strings.HasPrefix(frontend.way, "second") {
			continue
		}
		for _, from := range []caller{called("client"), called("near1"), called("node")} {
			c := traffic.From(p.hosts[from.place], from.name, from.addrs[frontend.family()], frontend.addr)
			c.Ask = func(conn net.Conn) error { _, err := ask(conn, 0, traffic.Timeout); return err }
			all = append(all, c)
		}
	}
	return traffic.Start(traffic.Plan{New: 1, Every: 20 * time.Millisecond}, all...)
}
