// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// withEndpoints returns svc with n endpoints, whose addresses begin with the byte first.
func withEndpoints(svc sdk.Service, first byte, n int) sdk.Service {
	svc.Cluster = nil
	for i := range n {
		svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{first, byte(i >> 16), byte(i >> 8), byte(i)}), 8080)})
	}
	return svc
}

// trySync sends an update and returns the errors of the Services that the dataplane could not serve.
func (l *instance) trySync(u sdk.Update) map[sdk.Name]error {
	l.Helper()
	u.From, u.To = l.revision, l.revision+1
	if u.Full {
		u.From = 0
	}
	result, err := l.plugin.Sync(l.Context(), u)
	if err != nil {
		l.Fatal(err)
	}
	l.revision = u.To
	failed := make(map[sdk.Name]error)
	for _, f := range result.Failed {
		failed[f.Name] = f.Err
	}
	return failed
}

// A Service with too many endpoints is refused with a hint, because one write would take too long. It keeps its
// previous endpoints, also in a restarted process.
func TestTooManyEndpointsAreRefused(t *testing.T) {
	l := newInstance(t)
	s := many(2)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	before := l.fake.snapshot()
	s.Services[0] = withEndpoints(s.Services[0], 11, Ceiling+1)
	var refusal *sdk.Refusal
	for _, u := range []sdk.Update{{Set: s.Services[:1]}, s.Update(0)} {
		if u.Full {
			l.restart()
		}
		failed := l.trySync(u)
		if why := failed[s.Services[0].Name]; len(failed) != 1 || !errors.As(why, &refusal) || refusal.Field == "" || refusal.Try == "" {
			t.Errorf("full: %t: failed: %v", u.Full, failed)
		}
		if after := l.fake.snapshot(); after != before {
			t.Errorf("full: %t: the kernel has\n%s\nand had before\n%s", u.Full, after, before)
		}
	}
}
