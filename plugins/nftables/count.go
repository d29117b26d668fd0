// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftable"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

const (
	countedFor   = 24 * time.Hour   // how long the kernel keeps the count of an endpoint that nothing calls
	countEvery   = 15 * time.Second // how often counts are read
	countWithin  = time.Second      // how long that may take
	mostCounted  = 1 << 16          // endpoints of a family that are counted
	mostReported = 100              // of these, reported: those with the most connections
)

// countedSet has the endpoints that were called. Packets fill it, so that no change of a Service
// costs anything, and no count is lost with one.
func countedSet(f ip) nftnl.Set {
	return nftnl.Set{Name: "counted", Key: index{ip: f}.fields(), Flags: nftnl.Dynamic, Timeout: countedFor, Size: mostCounted}
}

// count is the chain that counts: a packet comes there on the last hook of its way, once for each
// connection.
func (n nodeConfig) count() nftable.Chain {
	key, _ := index{ip: n.ip}.key()
	return nftable.Chain{Name: "count", Rules: []nftable.Rule{
		nftable.IfUntranslated(nftnl.Return), append(key, nftnl.Count("counted", 0)),
	}}
}

// A counted is the connections of endpoints, as they were read last.
type counted struct {
	mu   sync.Mutex // guards what follows
	at   time.Time
	last []sdk.Sample
}

// counts are the connections of endpoints, if they are counted. Where they cannot be read there are
// none, rather than those of before: the metric says that it is of the last 15 seconds.
func (p *plugin) counts() []sdk.Sample {
	if !p.counting.Load() {
		return nil
	}
	c := &p.counted
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < countEvery {
		return c.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), countWithin)
	defer cancel()
	c.last = nil
	var all []sdk.Sample
	err := p.each(func(f *family, conn *nftnl.Conn) error {
		c.at = time.Now()
		had, err := f.counts(ctx, conn)
		if err != nil {
			f.log.Warn("endpoints have no counts", "family", f.Family, "err", err)
		}
		all = append(all, f.busiest(had)...)
		return err
	})
	if err == nil {
		c.last = all
	}
	return c.last
}

// counts are how many connections endpoints had, as the kernel counted.
func (f *family) counts(ctx context.Context, conn *nftnl.Conn) (map[frame.Endpoint]uint64, error) {
	counts, err := f.List(conn).Counts(ctx, countedSet(f.ip).Name)
	if err != nil && !errors.Is(err, syscall.ENOENT) { // nothing is written yet
		return nil, fmt.Errorf("read how many connections endpoints had: %w", err)
	}
	return f.counted(counts), nil
}

// counted are the endpoints that the keys of counts are.
func (f ip) counted(counts map[string]uint64) map[frame.Endpoint]uint64 {
	had := make(map[frame.Endpoint]uint64, len(counts))
	for k, n := range counts {
		if protocol, addr, ok := f.ReadKey(k, true); ok {
			had[frame.Endpoint{Protocol: protocol, Addr: addr}] = n
		}
	}
	return had
}

// busiest are samples of the endpoints with the most connections.
func (f ip) busiest(had map[frame.Endpoint]uint64) []sdk.Sample {
	sample := sdk.Sample{Name: "pointsman_nftables_connections_total", Help: "With countConnections: connections that Services led to an endpoint; only of the hundred endpoints with the most in each IP family, as they were counted within the last 15 seconds."}
	return frame.Busiest(had, mostReported, sample, pick(f, "IPv4", "IPv6"))
}
