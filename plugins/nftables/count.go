// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

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
	return nftnl.Set{
		Name: "counted", Key: index{ip: f}.fields(), Flags: nftnl.Dynamic, Timeout: countedFor, Size: mostCounted,
	}
}

// count is the chain that counts: a packet comes there on the last hook of its way, once for each
// connection.
func (n nodeConfig) count() nftable.Chain {
	key, _ := index{ip: n.ip}.key()
	return nftable.Chain{Name: "count", Rules: []nftable.Rule{{
		nftnl.CT(nftnl.CTStatus, 0), nftnl.Mask(0, mark(translated)), nftnl.Cmp(nftnl.Equal, 0, mark(0)), to(nftnl.Return),
	}, append(key, nftnl.Count("counted", 0))}}
}

// A counted is the connections of endpoints, as they were read last.
type counted struct {
	mu   sync.Mutex // guards what follows
	at   time.Time
	last []sdk.Sample
}

// counts are the connections of endpoints, if they are counted.
func (p *plugin) counts() []sdk.Sample {
	p.mu.Lock()
	families := slices.Clone(p.families)
	p.mu.Unlock()
	if len(families) == 0 || !families[0].options.CountConnections {
		return nil
	}
	return p.counted.samples(families)
}

// samples are the counts of all families. Where they cannot be read, they are those of before.
func (c *counted) samples(families []*family) []sdk.Sample {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < countEvery {
		return c.last
	}
	c.at = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), countWithin)
	defer cancel()
	var all []sdk.Sample
	for _, f := range families {
		some, err := f.connections(ctx)
		if err != nil && !errors.Is(err, syscall.ENOENT) { // nothing is written yet
			f.log.Warn("cannot read how many connections endpoints had", "family", f.Family, "err", err)
			return c.last
		}
		all = append(all, some...)
	}
	c.last = all
	return all
}

// connections are how many endpoints had, as the kernel counted.
func (f *family) connections(ctx context.Context) ([]sdk.Sample, error) {
	conn, err := nftnl.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	counts, err := f.List(conn).Counts(ctx, countedSet(f.ip).Name)
	return f.most(counts), err
}

// most are samples of the endpoints with the most connections.
func (f ip) most(counts map[string]uint64) (all []sdk.Sample) {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	sample := sdk.Sample{Name: "pointsman_nftables_connections_total", Help: "With countConnections: connections that Services led to an endpoint; only of the hundred endpoints with the most in each IP family, as they were counted within the last 15 seconds."}
	for _, k := range keys[:min(len(keys), mostReported)] {
		proto, endpoint, ok := dump{ip: f}.frontend(index{ip: f}, k)
		if !ok {
			continue
		}
		sample.Value, sample.Labels = float64(counts[k]), map[string]string{
			"ip_family": pick(f, "IPv4", "IPv6"), "protocol": proto.String(), "endpoint": endpoint.String(),
		}
		all = append(all, sample)
	}
	return all
}
