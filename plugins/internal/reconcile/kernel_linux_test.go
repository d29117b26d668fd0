// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// A kernel is in memory. It counts commits, so that each process can detect those of others.
type kernel struct {
	mu       sync.Mutex // guards the fields below
	entries  map[sdk.Name]string
	commits  int
	packets  int                       // the number of sent packets
	affinity map[client]netip.AddrPort // the last endpoint of each client
}

func newKernel() *kernel {
	return &kernel{entries: make(map[sdk.Name]string), affinity: make(map[client]netip.AddrPort)}
}

// A handle is the kernel as one process sees it.
type handle struct {
	*kernel
	seen int // the number of commits at the last List, and of those by this process since
}

func (h *handle) List(context.Context) (map[sdk.Name]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = h.commits
	return maps.Clone(h.entries), nil
}

func (h *handle) Apply(_ context.Context, b reconcile.Batch[sdk.Name, string]) (map[sdk.Name]error, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commits, h.seen = h.commits+1, h.seen+1
	for _, change := range slices.Concat(b.Phases...) {
		if change.Op == reconcile.Remove {
			delete(h.entries, change.Key)
		} else {
			h.entries[change.Key] = change.New
		}
	}
	return nil, nil
}

func (h *handle) Foreign(context.Context) (why string, unsure bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen != h.commits {
		return "another program has changed entries", false
	}
	return "", false
}

// read decodes the entries of the kernel.
func (k *kernel) read() (f fixed, services map[sdk.Name]sdk.Service, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	services = make(map[sdk.Name]sdk.Service)
	for name, text := range k.entries {
		var svc sdk.Service
		if name == (sdk.Name{}) {
			err = errors.Join(err, json.Unmarshal([]byte(text), &f))
		} else {
			err = errors.Join(err, json.Unmarshal([]byte(text), &svc))
			services[name] = svc
		}
	}
	return f, services, err
}

// Inspect implements sdk.Inspector.
func (d *dataplane) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	_, services, err := d.kernel.read()
	for _, s := range services {
		for _, f := range s.Frontends {
			served := sdk.Served{Name: s.Name, Frontend: f}
			for _, ep := range s.Endpoints(f.Policy) {
				served.Endpoints = append(served.Endpoints, ep.Addr)
			}
			if err := errors.Join(ctx.Err(), tell(served)); err != nil {
				return err
			}
		}
	}
	return err
}

// A client is a client of a Service with affinity.
type client struct {
	name sdk.Name
	addr netip.Addr
}

// Send sends a packet. Endpoints take turns.
func (k *kernel) Send(from sdk.Caller, to netip.AddrPort, protocol sdk.Protocol) (answer sdktest.Answer) {
	f, services, err := k.read()
	if err != nil || f.Role != sdk.Active {
		return sdktest.Answer{}
	}
	o := sdktest.Where(maps.Values(services), f.Node, from, to, protocol)
	if o.Unserved || o.Verdict != sdk.Forward {
		return sdktest.Answer{Verdict: o.Verdict}
	}
	svc, _, _ := sdktest.Find(maps.Values(services), f.Node, to, protocol)
	key := client{svc.Name, from.Addr}
	k.mu.Lock()
	defer k.mu.Unlock()
	endpoint := k.affinity[key]
	if svc.Affinity == 0 || !slices.Contains(o.Endpoints, endpoint) {
		k.packets++
		endpoint = o.Endpoints[k.packets%len(o.Endpoints)]
	}
	k.affinity[key] = endpoint
	seen := from.Addr
	if o.Masquerades(endpoint) {
		i := slices.IndexFunc(f.Node.Addrs, func(a netip.Addr) bool { return sdk.FamilyOf(a) == sdk.FamilyOf(to.Addr()) })
		seen = f.Node.Addrs[i]
	}
	return sdktest.Answer{Verdict: sdk.Forward, Endpoint: endpoint, Client: seen}
}

// Forgets reports whether the flow of a client to an endpoint has ended: there are no connections in this kernel.
func (k *kernel) Forgets(to netip.AddrPort, protocol sdk.Protocol, endpoint netip.AddrPort) bool {
	f, services, err := k.read()
	if err != nil || protocol != sdk.UDP || f.Role != sdk.Active {
		return false
	}
	svc, _, served := sdktest.Find(maps.Values(services), f.Node, to, protocol)
	serving := slices.Clone(svc.Serving)
	for _, ep := range svc.Reachable() {
		serving = append(serving, ep.Addr.Addr())
	}
	return !served || !slices.Contains(serving, endpoint.Addr())
}
