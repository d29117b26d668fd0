// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// TestActivity counts what was heard and confirmed, and names what waits.
func TestActivity(t *testing.T) {
	tracker := track.New(nil)
	tracker.Synced()
	p := filled(t, "acme", tracker, sdk.FeatureIPv4)
	p.hooks.applied = func(*dataplane, feed.Acked) {}
	set := newSet(Settings{Tracker: tracker}, nil, p)
	before := set.Activity(t.Context())
	tracker.SetService(clusterService("web", netip.MustParseAddr("172.30.0.1"), corev1.ProtocolTCP))
	waits := set.Activity(t.Context())
	if waits.Changes != before.Changes+1 || waits.Sync.Pending != 1 || len(waits.Slowest) != 1 || waits.Slowest[0].Service != "shop/web/tcp4" || waits.Slowest[0].State != "pending" {
		t.Errorf("a Service waits: %+v", waits)
	}
	u, _ := p.session.cursor.Next()
	p.session.cursor.Ack(u.To, nil)
	p.session.note(feed.Acked{Update: u, Took: 250 * time.Millisecond})
	served := set.Activity(t.Context())
	if served.Updates != before.Updates+1 || served.SyncSeconds != before.SyncSeconds+0.25 || served.Sync.TookMS != 250 || len(served.Slowest) != 1 || served.Slowest[0].State != "served" {
		t.Errorf("it is confirmed: %+v", served)
	}
	if served.Connections != nil || served.Dataplane.Name != "acme" || served.Dataplane.Kind != "Plugin" {
		t.Errorf("without a process there are no connections to be known of: %+v", served)
	}
	p.session = nil
	if gone := set.Activity(t.Context()); gone.Slowest == nil || len(gone.Slowest) > 0 || gone.Updates != served.Updates {
		t.Errorf("without a session: %+v", gone)
	}
}

// TestConnectionsIn takes a count of all connections, and no other.
func TestConnectionsIn(t *testing.T) {
	for what, c := range map[string]struct {
		sample sdk.Sample
		want   bool
	}{
		"all of them":       {sdk.Sample{Name: "pointsman_my_plane_connections_total", Value: 41}, true},
		"of some endpoints": {sdk.Sample{Name: "pointsman_my_plane_connections_total", Value: 41, Labels: map[string]string{"endpoint": "x"}}, false},
		"of another one":    {sdk.Sample{Name: "pointsman_other_connections_total", Value: 41}, false},
		"another count":     {sdk.Sample{Name: "pointsman_my_plane_bytes_total", Value: 41}, false},
		"no count":          {sdk.Sample{Name: "pointsman_my_plane_connections_total", Value: -1}, false},
	} {
		if n := connectionsIn([]sdk.Sample{c.sample}, "my-plane"); (n != nil) != c.want || n != nil && *n != 41 {
			t.Errorf("%s: %v", what, n)
		}
	}
}
