// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/internal/echo"
)

// testbedCheck is the name of what is found where the testbed's addresses are in use. It is
// reported only then, and whichever checks were asked for.
const testbedCheck = "C00/testbed-is-free"

// testbedIsFree looks before the first check whether anything has the loopback testbed's addresses:
// a program that listens there, such as a plugin that was left behind, or rules that lead away from
// there. Every check would fail for that, and none would say so.
func testbedIsFree(t T, s Subject) Finding {
	f := Finding{Check: testbedCheck, Status: Pass, Needed: true}
	if s.Testbed != Loopback() {
		return f
	}
	done, err := s.exclusive(t.Context())
	if err != nil {
		f.conclude(err)
		return f
	}
	defer done()
	const leaves = 3 * time.Second // how long what was there before may take to end
	wanted := testbedSockets()
	err = poll(t.Context(), leaves, func() error {
		if busy := listeners(wanted); len(busy) > 0 {
			return mismatch{"the addresses of the testbed to be free", strings.Join(few(busy), "; ") + "; try: end that process, and run this again"}
		}
		return nil
	})
	if err == nil {
		err = servedAlready(t)
	}
	f.conclude(err)
	return f
}

// testbedSockets returns every address at which a check listens, or has a dataplane listen.
func testbedSockets() map[echo.Socket]bool {
	all := make(map[echo.Socket]bool)
	for _, s := range Scenarios() {
		s, _ = Loopback().Place(s)
		for at := range echo.Sockets(s.Services) {
			all[at] = true
		}
		for _, svc := range s.Services {
			for _, f := range svc.Frontends {
				for _, addr := range addressesOf(f, s.Node) {
					all[echo.Socket{Protocol: svc.Name.Protocol, Addr: addr}] = true
				}
			}
		}
	}
	return all
}

// addressesOf returns where packets for f are sent: a node port's at the node's addresses.
func addressesOf(f sdk.Frontend, n sdk.Node) (all []netip.AddrPort) {
	if !f.Addr.Addr().IsUnspecified() {
		return []netip.AddrPort{f.Addr}
	}
	for _, a := range n.Addrs {
		if n.TakesNodePorts(a) && sdk.FamilyOf(a) == sdk.FamilyOf(f.Addr.Addr()) {
			all = append(all, netip.AddrPortFrom(a, f.Addr.Port()))
		}
	}
	return all
}

// servedAlready reports a packet of the first scenarios that arrives although no dataplane runs.
func servedAlready(t T) error {
	for _, name := range []string{"cluster-ip", "node-port"} {
		s, err := read(name + ".txtar")
		if err != nil {
			return err
		}
		s, _ = Loopback().Place(s)
		stage, err := Loopback().Open(t.Context(), nil, s)
		if err != nil {
			return fmt.Errorf("make endpoints answer: %w", err)
		}
		for _, p := range s.Packets {
			if a, err := stage.Send(t.Context(), p); err == nil && a.Verdict == sdk.Forward {
				return errors.Join(stage.Close(), mismatch{fmt.Sprintf("nothing to serve %s before a dataplane runs", p.To),
					fmt.Sprintf("%s answers, and no process listens at %s: a rule in the kernel leads there; try: pointsman cleanup, and look with: nft list ruleset; iptables-save", a.Endpoint, p.To)})
			}
		}
		if err := stage.Close(); err != nil {
			return err
		}
	}
	return nil
}
