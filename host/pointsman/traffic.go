// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

// writeTraffic prints the traffic of each port of each Service, the busiest first.
func writeTraffic(w io.Writer, list admin.ServiceList) {
	type line struct {
		name, state string
		traffic     *admin.Traffic
	}
	var lines []line
	for _, s := range list.Items {
		for _, p := range s.Ports {
			lines = append(lines, line{s.PortName(p), p.State, p.Traffic})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return busier(a.traffic, b.traffic) })
	now := time.Now()
	fmt.Fprintf(w, "NAME\t%s\tCONNECTIONS/S\tBYTES IN/S\tBYTES OUT/S\tCONNECTIONS\tCOUNTED FOR\n", paintState(w, "STATE"))
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%s\t", l.name, paintState(w, l.state))
		if l.traffic == nil {
			fmt.Fprint(w, "-\t-\t-\t-\t-\n")
			continue
		}
		in, out := byteRates(l.traffic)
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", perSecond(l.traffic.ConnectionsPerSecond), in, out, l.traffic.Connections, ago(l.traffic.Since, now))
	}
	if list.Reading.Why != "" {
		fmt.Fprintf(w, "\nno traffic is known: %s\n", list.Reading.Why)
	}
}

// busier orders what is known of traffic, the most first: by connections a second, by bytes, by all
// connections.
func busier(a, b *admin.Traffic) int {
	if a == nil || b == nil {
		return cmp.Compare(known(b), known(a))
	}
	bytes := func(t *admin.Traffic) float64 {
		if t.Bytes == nil {
			return 0
		}
		return t.Bytes.InPerSecond + t.Bytes.OutPerSecond
	}
	return cmp.Or(
		cmp.Compare(b.ConnectionsPerSecond, a.ConnectionsPerSecond),
		cmp.Compare(bytes(b), bytes(a)),
		cmp.Compare(b.Connections, a.Connections),
	)
}

func known(t *admin.Traffic) int {
	if t == nil {
		return 0
	}
	return 1
}

// byteRates are the bytes a second from callers, and to them; "-": they are not counted.
func byteRates(t *admin.Traffic) (in, out string) {
	if t.Bytes == nil {
		return "-", "-"
	}
	return perSecond(t.Bytes.InPerSecond), perSecond(t.Bytes.OutPerSecond)
}

// perSecond is a rate, as people read it.
func perSecond(rate float64) string {
	unit := ""
	switch {
	case rate >= 1e9:
		rate, unit = rate/1e9, "G"
	case rate >= 1e6:
		rate, unit = rate/1e6, "M"
	case rate >= 1e4:
		rate, unit = rate/1e3, "k"
	}
	return strconv.FormatFloat(rate, 'f', 1, 64) + unit
}

// trafficText is one line about what a port has had.
func trafficText(t *admin.Traffic, now time.Time) string {
	text := fmt.Sprintf("it had %d connections in the %s that they are counted for, and has %s a second now", t.Connections, ago(t.Since, now), perSecond(t.ConnectionsPerSecond))
	if t.Bytes != nil {
		in, out := byteRates(t)
		text += fmt.Sprintf("; of bytes, %s a second in and %s out", in, out)
	}
	return text
}
