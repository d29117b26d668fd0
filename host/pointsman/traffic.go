// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
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
	slices.SortStableFunc(lines, func(a, b line) int { return admin.Busier(a.traffic, b.traffic) })
	now := time.Now()
	fmt.Fprintln(w, "NAME\tSTATE\tCONNECTIONS/S\tBYTES IN/S\tBYTES OUT/S\tCONNECTIONS\tCOUNTED FOR")
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%s\t", l.name, l.state)
		if l.traffic == nil {
			fmt.Fprint(w, "-\t-\t-\t-\t-\n")
			continue
		}
		in, out := byteRates(l.traffic)
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", phrase.PerSecond(l.traffic.ConnectionsPerSecond), in, out, l.traffic.Connections, ago(l.traffic.Since, now))
	}
	if list.Reading.Why != "" {
		fmt.Fprintf(w, "\nno traffic is known: %s\n", list.Reading.Why)
	}
}

// byteRates are the bytes a second from callers, and to them; "-": they are not counted.
func byteRates(t *admin.Traffic) (in, out string) {
	if t.Bytes == nil {
		return "-", "-"
	}
	return phrase.PerSecond(t.Bytes.InPerSecond), phrase.PerSecond(t.Bytes.OutPerSecond)
}

// trafficText is one line about what a port has had.
func trafficText(t *admin.Traffic, now time.Time) string {
	text := fmt.Sprintf("it had %d connections in the %s that they are counted for, and has %s a second now", t.Connections, ago(t.Since, now), phrase.PerSecond(t.ConnectionsPerSecond))
	if t.Bytes != nil {
		in, out := byteRates(t)
		text += fmt.Sprintf("; of bytes, %s a second in and %s out", in, out)
	}
	return text
}
