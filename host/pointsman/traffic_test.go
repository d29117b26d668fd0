// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
)

// TestTrafficTable has the busiest port first, and those of which nothing is known last.
func TestTrafficTable(t *testing.T) {
	since := time.Now().Add(-200 * time.Second)
	port := func(name string, traffic *admin.Traffic) admin.Port {
		return admin.Port{Name: name, Network: "tcp4", State: health.Served, Traffic: traffic}
	}
	list := admin.ServiceList{Reading: &admin.Reading{Seconds: 1}, Items: []admin.Service{
		{Namespace: "shop", Name: "web", Ports: []admin.Port{
			port("none", nil),
			port("idle", &admin.Traffic{Since: since, Connections: 7}),
			port("bytes", &admin.Traffic{Since: since, Bytes: &admin.Bytes{InPerSecond: 1.5e4, OutPerSecond: 2.5e6}}),
		}},
		{Namespace: "shop", Name: "db", Ports: []admin.Port{port("sql", &admin.Traffic{Since: since, Connections: 8, ConnectionsPerSecond: 0.5})}},
		{Namespace: "shop", Name: "nothing"},
	}}
	table := func() string {
		var out bytes.Buffer
		w := tableFor(&out)
		writeServices(w, list)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := `NAME                 STATE   CONNECTIONS/S  BYTES IN/S  BYTES OUT/S  CONNECTIONS  COUNTED FOR
shop/db:sql/tcp4     served  0.5            -           -            8            3m20s
shop/web:bytes/tcp4  served  0.0            15.0k       2.5M         0            3m20s
shop/web:idle/tcp4   served  0.0            -           -            7            3m20s
shop/web:none/tcp4   served  -              -           -            -            -
`
	if got := table(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	list.Reading.Why = "acme does not count"
	if got := table(); !strings.Contains(got, "no traffic is known: acme does not count\n") {
		t.Errorf("got\n%s", got)
	}
}

// TestTrafficOfOne is a line of service show.
func TestTrafficOfOne(t *testing.T) {
	now := time.Unix(5000, 0)
	traffic := &admin.Traffic{Since: now.Add(-time.Minute), Connections: 7, ConnectionsPerSecond: 2}
	if got := trafficText(traffic, now); got != "it had 7 connections in the 1m0s that they are counted for, and has 2.0 a second now" {
		t.Error(got)
	}
	traffic.Bytes = &admin.Bytes{InPerSecond: 3, OutPerSecond: 4}
	if got := trafficText(traffic, now); !strings.HasSuffix(got, " now; of bytes, 3.0 a second in and 4.0 out") {
		t.Error(got)
	}
}
