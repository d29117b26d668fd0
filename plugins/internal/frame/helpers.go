// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// This file has helpers for modes.

// OnLink reports whether addr may belong to another machine on each link, as IPv6 link-local
// addresses do. To listen there, or to create a virtual server there, takes the name of the link.
// Addresses in 169.254.0.0/16 have no such zone.
func OnLink(addr netip.Addr) bool { return addr.Is6() && addr.IsLinkLocalUnicast() }

// NodePortPrefixes returns the parts of one of the node's prefixes that take node ports.
func NodePortPrefixes(n sdk.Node, own netip.Prefix) (all []netip.Prefix) {
	for _, p := range n.NodePorts {
		switch {
		case p.Bits() <= own.Bits() && p.Contains(own.Addr()):
			all = append(all, own)
		case own.Contains(p.Addr()):
			all = append(all, p.Masked())
		}
	}
	return all
}

// Localhost reports whether node ports are served on 127.0.0.1. IPv6 has no equivalent of
// route_localnet, so they are never served on ::1.
func Localhost(f sdk.Family, n sdk.Node) bool {
	return f == sdk.IPv4 && n.TakesNodePorts(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// ParseOptions decodes the options of a mode from the host's config file into o, a pointer to a
// struct with the defaults. It refuses options that the struct does not have.
func ParseOptions(mode string, data []byte, o any) error {
	var given, known map[string]json.RawMessage
	if err := json.Unmarshal([]byte(cmp.Or(string(data), "{}")), &given); err != nil {
		return &sdk.Refusal{Field: "options", Why: err.Error(), Try: "pointsman plugin info " + mode + ", which lists the options"}
	}
	defaults, _ := json.Marshal(o) // cannot fail: it has only text, numbers and bools
	_ = json.Unmarshal(defaults, &known)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if known[name] == nil {
			return &sdk.Refusal{Field: "options." + name, Why: "unknown option", Try: "one of " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")}
		}
		one, _ := json.Marshal(map[string]json.RawMessage{name: given[name]}) // cannot fail: it was decoded from JSON
		if err := json.Unmarshal(one, o); err != nil {
			if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
				err = fmt.Errorf("want a %s, not a %s", wrong.Type, wrong.Value)
			}
			return &sdk.Refusal{Field: "options." + name, Why: err.Error(), Try: "pointsman plugin info " + mode + ", which lists the options"}
		}
	}
	return nil
}

// TooMany refuses a Service with more than most endpoints.
func TooMany(svc sdk.Service, most int, try string) error {
	n := max(len(svc.Cluster), len(svc.Local))
	if n <= most {
		return nil
	}
	return &sdk.Refusal{
		Field: "endpoints",
		Why:   fmt.Sprintf("%d endpoints are more than the limit of %d for one port of a Service", n, most),
		Try:   try,
	}
}

// TellServed calls tell with each of all, sorted by name and frontend.
func TellServed(ctx context.Context, all []sdk.Served, tell func(sdk.Served) error) error {
	slices.SortFunc(all, func(a, b sdk.Served) int {
		return cmp.Or(a.Name.Compare(b.Name), a.Frontend.Compare(b.Frontend))
	})
	for _, served := range all {
		if err := errors.Join(ctx.Err(), tell(served)); err != nil {
			return err
		}
	}
	return nil
}

// A Tally caches the kernel's counters of dropped packets. It is safe for concurrent use. The
// zero value has read nothing.
type Tally struct {
	mu   sync.Mutex // guards the fields below
	last []sdk.Drops
	next time.Time
}

// tallyTimeout limits the time that the kernel may take. The host asks for a Report each second,
// and it is answered at once.
const tallyTimeout = 200 * time.Millisecond

// Read returns the counters of both IP families. count reads those of one family by reason. Read
// uses at most a hundredth of a CPU: if the last reading was too recent, or count fails, it
// returns the counters of the last reading.
func (t *Tally) Read(count func(context.Context, sdk.Family) (map[string]uint64, error)) []sdk.Drops {
	t.mu.Lock()
	defer t.mu.Unlock()
	began := time.Now()
	if began.Before(t.next) {
		return t.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), tallyTimeout)
	defer cancel()
	defer func() { t.next = began.Add(100 * time.Since(began)) }()
	var all []sdk.Drops
	for _, of := range families {
		counted, err := count(ctx, of)
		if err != nil {
			return t.last
		}
		for reason, n := range counted {
			all = append(all, sdk.Drops{Reason: reason, Family: of, Packets: n})
		}
	}
	t.last = all
	return all
}

// Notes are notes for reports, by subject. They are safe for concurrent use. The zero value has
// none.
type Notes struct {
	mu    sync.Mutex // guards about
	about map[string][]string
}

// Set replaces the notes about a subject.
func (n *Notes) Set(about string, now ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.about == nil {
		n.about = make(map[string][]string)
	}
	n.about[about] = now
}

// All returns the notes about all subjects, sorted and without duplicates.
func (n *Notes) All() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(n.about))...))))
}
