// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"fmt"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// TestCountsNeverFall reads counters that begin anew, come and go.
func TestCountsNeverFall(t *testing.T) {
	web := sdk.Name{Namespace: "shop", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4}
	late := sdk.Name{Namespace: "shop", Service: "late", Protocol: sdk.TCP, Family: sdk.IPv4}
	type parts = map[string]Count
	of := func(n uint64) Count { return Count{n, 10 * n, 100 * n} }
	counts := new(Counts)
	for i, step := range []struct {
		read map[sdk.Name]parts
		want map[sdk.Name]string // connections, and since when
	}{
		{map[sdk.Name]parts{web: {"a": of(50), "b": of(7)}}, map[sdk.Name]string{web: "0 since 0"}},
		{map[sdk.Name]parts{web: {"a": of(52), "b": of(7)}}, map[sdk.Name]string{web: "2 since 0"}},
		{map[sdk.Name]parts{web: {"a": of(1), "b": of(8)}}, map[sdk.Name]string{web: "4 since 0"}},                            // a was written anew
		{map[sdk.Name]parts{web: {"a": of(1), "c": of(3)}}, map[sdk.Name]string{web: "7 since 0"}},                            // b has gone, and c has come
		{map[sdk.Name]parts{web: {"c": of(3)}, late: {"x": of(9)}}, map[sdk.Name]string{web: "7 since 0", late: "9 since 3"}}, // a Service has come
		{map[sdk.Name]parts{late: {"x": of(9)}}, map[sdk.Name]string{late: "9 since 3"}},
		{map[sdk.Name]parts{late: {"x": of(9)}, web: {"c": of(1)}}, map[sdk.Name]string{late: "9 since 3", web: "1 since 5"}}, // one has come back
	} {
		all := counts.Take(step.read, i%2 == 0, time.Unix(int64(1000+i), 0))
		if len(all) != len(step.want) {
			t.Errorf("step %d: %+v", i, all)
		}
		for _, got := range all {
			if text := fmt.Sprintf("%d since %d", got.Connections, got.Since.Unix()-1000); text != step.want[got.Name] {
				t.Errorf("step %d: %s had %s, want %s", i, got.Name, text, step.want[got.Name])
			}
			if got.Bytes != (i%2 == 0) || got.BytesIn != 10*got.Connections || got.BytesOut != 100*got.Connections {
				t.Errorf("step %d: %+v", i, got)
			}
		}
	}
}
