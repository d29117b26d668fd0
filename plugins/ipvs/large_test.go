// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// widened is a Service with n endpoints, from addresses that begin with first.
func widened(svc sdk.Service, first byte, n int) sdk.Service {
	svc.Cluster = nil
	for i := range n {
		svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{first, byte(i >> 16), byte(i >> 8), byte(i)}), 8080)})
	}
	return svc
}

// tell sends an update, and returns why the dataplane does not serve Services of it.
func (l *life) tell(u sdk.Update) map[sdk.Name]error {
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

// More endpoints than the kernel takes in good time are refused, with what to do; the
// Service keeps what served it, also in a process that begins anew.
func TestTooManyEndpointsAreRefused(t *testing.T) {
	l := newLife(t)
	s := many(2)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	before := l.fake.picture()
	s.Services[0] = widened(s.Services[0], 11, Ceiling+1)
	var refusal *sdk.Refusal
	for _, u := range []sdk.Update{{Set: s.Services[:1]}, s.Update(0)} {
		if u.Full {
			l.restart()
		}
		failed := l.tell(u)
		if why := failed[s.Services[0].Name]; len(failed) != 1 || !errors.As(why, &refusal) || refusal.Field == "" || refusal.Try == "" {
			t.Errorf("full: %t: failed: %v", u.Full, failed)
		}
		if after := l.fake.picture(); after != before {
			t.Errorf("full: %t: the kernel has another\n%s\nthan\n%s", u.Full, after, before)
		}
	}
}
