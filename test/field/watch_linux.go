// SPDX-License-Identifier: Apache-2.0

package field

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
)

// A Watcher is a dataplane that can watch packets.
type Watcher interface {
	sdk.Dataplane
	sdk.Watcher
}

// Watch sends each packet of Drops while the dataplane watches either all packets or only packets with these addresses,
// and checks what the dataplane reports about the packet. It also checks that the kernel has a table owned by the
// dataplane's process during each watch, and not afterwards. foreign is as in Drops.
func Watch(t *testing.T, g *netns.Testbed, d Watcher, foreign bool) {
	t.Helper()
	n, _, undo := placeDropping(t, g, d)
	defer undo()
	for i, p := range drops {
		if p.foreign && !foreign {
			continue
		}
		n.watch(d, p, p.reason == "" || i%2 == 0)
	}
}

// watch sends p until w reports what happened to it. If filtered is set, w watches only packets with p's addresses.
func (d node) watch(w Watcher, p drop, filtered bool) {
	d.Helper()
	to := netip.MustParseAddrPort(p.to)
	filter := sdk.Packet{}
	if filtered {
		filter = sdk.Packet{Protocol: sdk.UDP, From: netip.AddrPortFrom(netip.MustParseAddr(p.from), 0), To: to}
	}
	want, at := sdk.Drop, " rule "
	switch {
	case p.reason == "":
		want, at = sdk.Forward, ":8080"
	case p.reason == sdk.DropNoEndpoint, p.foreign && to.Port() == 54: // an unused port of a Service's ClusterIP
		want = sdk.Reject
	}
	ctx, cancel := context.WithCancel(d.Context())
	defer cancel()
	watched, ended := make(chan sdk.WatchedPacket, 100), make(chan error, 1)
	go func() {
		ended <- w.Watch(ctx, filter, func(p sdk.WatchedPacket) error {
			select {
			case watched <- p:
			default: // the test needs no more packets
			}
			return nil
		})
	}()
	eventually.Succeeds(d, fmt.Sprintf("the watch reports %s > %s", p.from, p.to), func() error {
		d.datagram("192.0.2.7", "172.30.0.43:53") // a watch with a filter must not report this packet
		d.datagram(p.from, p.to)
		for {
			select {
			case err := <-ended:
				d.Fatal(err)
			case got := <-watched:
				is := got.From.Addr().String() == p.from && got.To == to
				if is && got.Protocol == sdk.UDP && got.Reason == p.reason && got.Verdict == want && strings.Contains(got.At, at) {
					return nil
				}
				if is || filtered || got.Verdict == sdk.Forward {
					d.Errorf("the watch reported %+v, %s; want %s for %q at %q", got, got.Verdict, want, p.reason, at)
				}
			case <-time.After(100 * time.Millisecond):
				return errors.New("no report within 100 ms")
			}
		}
	})
	if tables, err := d.run("nft list ruleset inet"); err != nil || !strings.Contains(tables, "table inet pointsman-watch-") || !strings.Contains(tables, "flags owner\n") {
		d.Errorf("during the watch, the kernel has no table that the process owns: %v\n%s", err, tables)
	}
	cancel()
	if err := <-ended; err != nil {
		d.Errorf("the watch ended with an error: %v", err)
	}
	eventually.Succeeds(d, "the kernel deletes the table", func() error { // a child between fork and exec may hold the socket
		if tables, err := d.run("nft list tables"); err != nil || strings.Contains(tables, "pointsman-watch-") {
			return fmt.Errorf("the tables are, with error %v:\n%s", err, tables)
		}
		return nil
	})
}
