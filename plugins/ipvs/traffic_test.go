// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"maps"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// TestCounts sums up what the virtual services of each Service have had; those of other programs are
// nothing of theirs.
func TestCounts(t *testing.T) {
	l := newLife(t)
	served, err := sdktest.Parse("two.txtar", []byte(`In a test.
-- services --
ns1/web:http tcp
  cluster-ip  172.30.0.41:80
  external-ip 203.0.113.41:80
  endpoint    10.180.1.1:8080
ns1/other:dns udp
  cluster-ip 172.30.0.42:53
  endpoint   10.180.1.1:8080
-- packets --
10.180.0.9 > 172.30.0.41:80 = 10.180.1.1:8080
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.full(served); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	l.counts(map[string]string{"ns1/web:http/tcp4": "0 0 0", "ns1/other:dns/udp4": "0 0 0"})
	l.fake.mu.Lock()
	foreign := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, mark: 7}
	l.fake.services[foreign] = &fakeService{}
	for _, s := range l.fake.services {
		s.had = frame.Count{Connections: s.had.Connections + 2, BytesIn: s.had.BytesIn + 30, BytesOut: s.had.BytesOut + 400}
	}
	l.fake.mu.Unlock()
	l.counts(map[string]string{"ns1/web:http/tcp4": "4 60 800", "ns1/other:dns/udp4": "2 30 400"})
	l.fake.mu.Lock()
	delete(l.fake.services, foreign)
	l.fake.mu.Unlock()
}

// counts asks what each Service has had: connections, and bytes both ways.
func (l *life) counts(want map[string]string) {
	l.Helper()
	got := make(map[string]string)
	err := l.plugin.Count(l.Context(), func(t sdk.Traffic) error {
		if !t.Bytes || t.Since.IsZero() {
			l.Errorf("counted: %+v", t)
		}
		got[t.Name.String()] = fmt.Sprint(t.Connections, " ", t.BytesIn, " ", t.BytesOut)
		return nil
	})
	if err != nil || !maps.Equal(got, want) {
		l.Errorf("%v, %v; want %v", got, err, want)
	}
}
