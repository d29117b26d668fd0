// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
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

// Tell tells what Take takes.
func (c *Counts) Tell(parts map[sdk.Name]map[string]Count, bytes bool, tell func(sdk.Traffic) error) error {
	for _, t := range c.Take(parts, bytes, time.Now()) {
		if err := tell(t); err != nil {
			return err
		}
	}
	return nil
}

// An Endpoint is one whose connections are counted, whichever Services lead to it.
type Endpoint struct {
	Protocol sdk.Protocol
	Addr     netip.AddrPort
}

// Divide adds to each Service what its endpoints have had. A Service that shares one with another is
// left out, for it is not known whose connections those are.
func Divide(parts map[sdk.Name]map[string]Count, endpoints iter.Seq2[sdk.Name, netip.AddrPort], had map[Endpoint]uint64) {
	owner, shared := make(map[Endpoint]sdk.Name), make(map[sdk.Name]bool)
	for name, addr := range endpoints {
		at := Endpoint{name.Protocol, addr}
		if other, taken := owner[at]; taken && other != name {
			shared[name], shared[other] = true, true
		}
		owner[at] = name
		if parts[name] == nil {
			parts[name] = make(map[string]Count)
		}
		if n := had[at]; n > 0 {
			parts[name][addr.String()] = Count{Connections: n}
		}
	}
	for name := range shared {
		delete(parts, name)
	}
}

// Busiest are samples of the endpoints with the most connections, so many at most.
func Busiest(had map[Endpoint]uint64, most int, sample sdk.Sample, family string) (all []sdk.Sample) {
	order := slices.SortedFunc(maps.Keys(had), func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(had[b], had[a]), a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol))
	})
	for _, at := range order[:min(len(order), most)] {
		sample.Value = float64(had[at])
		sample.Labels = map[string]string{"ip_family": family, "protocol": at.Protocol.String(), "endpoint": at.Addr.String()}
		all = append(all, sample)
	}
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
