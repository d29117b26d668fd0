// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// TestConforms runs the conformance suite against a kernel in memory: every scenario, and every check of the contract
// that does not need a real node.
func TestConforms(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	s := sdktest.InProcess(Description, func() sdk.Dataplane { return newPlugin(dir, f.edges()) })
	s.Testbed = &fakeTestbed{fake: f}
	foreign := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.MustParseAddrPort("203.0.113.9:443")}
	err := kernel{balancer: f}.do(
		step{verb: addService, service: foreign, scheduling: scheduling{scheduler: "wlc"}},
		step{verb: addDest, service: foreign, dest: netip.MustParseAddrPort("10.9.9.9:443"), weight: 7})
	if err != nil {
		t.Fatal(err)
	}
	s.Foreign = func(context.Context) (string, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if v := f.services[foreign]; v != nil {
			return fmt.Sprint(v.scheduling, v.dests), nil
		}
		return "", errors.New("the virtual server of another program is gone")
	}
	s.Disturb = func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		maps.DeleteFunc(f.services, func(at serviceKey, _ *fakeService) bool { return at != foreign })
		return nil
	}
	sdktest.Conform(t, s)
}
