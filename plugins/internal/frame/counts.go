// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Count is what one of the kernel's counters has: a rule's, a set's or a virtual service's.
type Count struct{ Connections, BytesIn, BytesOut uint64 }

// Counts makes of the kernel's counters, each of which begins anew when what it belongs to is written
// anew, counts of Services that never fall. It counts from the first Take on, and of a Service that comes
// later from the Take before.
type Counts struct {
	mu       sync.Mutex // guards what follows
	at       time.Time  // of the last Take; zero: there was none
	services map[sdk.Name]*counted
}

// counted is what one Service has had.
type counted struct {
	since time.Time
	sum   Count
	parts map[string]Count // by counter, as it was last
}

// Take is what Services have had so far, where the kernel's counters, of which each Service may have
// several, are read as parts at a time. A Service that is not among them is forgotten.
func (c *Counts) Take(parts map[sdk.Name]map[string]Count, bytes bool, at time.Time) []sdk.Traffic {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, services := make([]sdk.Traffic, 0, len(parts)), make(map[sdk.Name]*counted, len(parts))
	for name, now := range parts {
		was := c.services[name]
		switch {
		case was != nil:
			was.add(now)
		case c.at.IsZero():
			was = &counted{since: at} // what it has had before is not known to be its
		default:
			was = &counted{since: c.at}
			was.add(now)
		}
		was.parts = now
		services[name] = was
		all = append(all, sdk.Traffic{
			Name: name, Since: was.since, Connections: was.sum.Connections,
			Bytes: bytes, BytesIn: was.sum.BytesIn, BytesOut: was.sum.BytesOut,
		})
	}
	c.at, c.services = at, services
	return all
}

// add adds what has come since the parts were read last.
func (c *counted) add(now map[string]Count) {
	for part, n := range now {
		was := c.parts[part]
		if n.Connections < was.Connections || n.BytesIn < was.BytesIn || n.BytesOut < was.BytesOut {
			was = Count{} // it began anew
		}
		c.sum.Connections += n.Connections - was.Connections
		c.sum.BytesIn += n.BytesIn - was.BytesIn
		c.sum.BytesOut += n.BytesOut - was.BytesOut
	}
}
