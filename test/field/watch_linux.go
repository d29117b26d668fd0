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
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
)

// A Watcher is a dataplane that watches packets.
type Watcher interface {
	sdk.Dataplane
	sdk.Watcher
}

// Watch sends the packets of Drops while the dataplane watches all packets, or only those like the one that is sent: it
// tells what happened to each. Meanwhile the kernel has a table that the dataplane's process owns; afterwards it does
// not. foreign is as with Drops.
func Watch(t *testing.T, g *netns.Testbed, d Watcher, foreign bool) {
	t.Helper()
	s, err := sdktest.Parse("drops", []byte(dropping))
	if err != nil {
		t.Fatal(err)
	}
	s, left := g.Place(s)
	if len(left) > 0 {
		t.Fatal(left)
	}
	n := node{t, g, d}
	n.update(s.Update(1))
	n.datagram("198.18.0.7", "192.0.2.10:9") // the host exists from now on
	_, undo := n.leadBack(netip.MustParseAddr("198.18.0.7"))
	defer undo()
	n.update(s.Update(2))
	for i, p := range drops {
		if p.foreign && !foreign {
			continue
		}
		n.watch(d, p, p.reason == "" || i%2 == 0)
	}
}

// watch sends packets like p until w tells what happened to one. With named, w watches only such packets.
func (d node) watch(w Watcher, p drop, named bool) {
	d.Helper()
	to := netip.MustParseAddrPort(p.to)
	like := sdk.Packet{}
	if named {
		like = sdk.Packet{Protocol: sdk.UDP, From: netip.AddrPortFrom(netip.MustParseAddr(p.from), 0), To: to}
	}
	want, at := sdk.Drop, " rule "
	switch {
	case p.reason == "":
		want, at = sdk.Forward, ":8080"
	case p.reason == sdk.DropNoEndpoint, p.foreign && to.Port() == 54: // a port that a Service's own address does not have
		want = sdk.Reject
	}
	ctx, cancel := context.WithCancel(d.Context())
	defer cancel()
	told, ended := make(chan sdk.WatchedPacket, 100), make(chan error, 1)
	go func() {
		ended <- w.Watch(ctx, like, func(p sdk.WatchedPacket) error {
			select {
			case told <- p:
			default: // it has told of enough packets
			}
			return nil
		})
	}()
	eventually.Succeeds(d, fmt.Sprintf("%s > %s is told", p.from, p.to), func() error {
		d.datagram("192.0.2.7", "172.30.0.43:53") // not told of if another packet is named
		d.datagram(p.from, p.to)
		for {
			select {
			case err := <-ended:
				d.Fatal(err)
			case got := <-told:
				is := got.From.Addr().String() == p.from && got.To == to
				if is && got.Protocol == sdk.UDP && got.Reason == p.reason && got.Verdict == want && strings.Contains(got.At, at) {
					return nil
				}
				if is || named || got.Verdict == sdk.Forward {
					d.Errorf("told %+v, %s; want %s for %q at %q", got, got.Verdict, want, p.reason, at)
				}
			case <-time.After(100 * time.Millisecond):
				return errors.New("it is not")
			}
		}
	})
	if tables, err := d.run("nft list ruleset inet"); err != nil || !strings.Contains(tables, "table inet pointsman-watch-") || !strings.Contains(tables, "flags owner\n") {
		d.Errorf("while it watches there is no table of its process alone: %v\n%s", err, tables)
	}
	cancel()
	if err := <-ended; err != nil {
		d.Errorf("at its end: %v", err)
	}
	eventually.Succeeds(d, "the table is gone", func() error { // a process that is just being started may hold the socket until its exec
		if tables, err := d.run("nft list tables"); err != nil || strings.Contains(tables, "pointsman-watch-") {
			return fmt.Errorf("there is %v\n%s", err, tables)
		}
		return nil
	})
}
