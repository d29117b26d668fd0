// SPDX-License-Identifier: Apache-2.0

package track

import (
	"slices"
	"testing"
)

// An endpoint is not used while its address is a cluster IP, whichever object came first
// (kubernetes#40870).
func TestEndpointIsClusterIP(t *testing.T) {
	const problem = "EndpointSlice web-1: endpoint 172.30.0.2 is the cluster IP of Service ns1/db; it is not used"
	for _, dbFirst := range []bool{true, false} {
		tracker, notices := newTracker()
		c := tracker.Cursor(everything)
		tracker.SetService(newService("web", "172.30.0.1"))
		if dbFirst {
			tracker.SetService(newService("db", "172.30.0.2"))
		}
		tracker.SetSlice(newSlice("web-1", "web", "10.180.0.1 n1", "172.30.0.2"))
		tracker.SetService(newService("db", "172.30.0.2"))
		want(t, "a cluster IP is left out", nextUpdate(c), `
			full
			set ns1/db:http/tcp4 [cluster-ip 172.30.0.2:80] = []
			set ns1/web:http/tcp4 [cluster-ip 172.30.0.1:80] = [10.180.0.1:8080 here]`)
		if s, _ := tracker.Service(Key{"ns1", "web"}); len(s.Problems) != 1 || s.Problems[0].Message != problem {
			t.Errorf("the problems are %q", s.Problems)
		}
		if got := reasons(*notices); !slices.Equal(got, []string{"InvalidAddress EndpointSlice ns1/web-1"}) {
			t.Errorf("reported %q, want one notice", got)
		}
		tracker.SetService(newService("db", "172.30.0.9"))
		want(t, "not a cluster IP any more", nextUpdate(c), `
			set ns1/db:http/tcp4 [cluster-ip 172.30.0.9:80] = []
			set ns1/web:http/tcp4 [cluster-ip 172.30.0.1:80] = [10.180.0.1:8080 here 172.30.0.2:8080 here]`)
		tracker.DeleteSlice("ns1", "web-1")
		if len(tracker.endpointIndex.slices) > 0 {
			t.Errorf("the index has %v of a deleted slice", tracker.endpointIndex.slices)
		}
	}
}
