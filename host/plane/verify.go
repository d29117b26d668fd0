// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// A Verifier compares what the kernel serves with what a dataplane was sent.
type Verifier struct {
	want map[frontend][]netip.AddrPort
	seen map[frontend]bool
	bad  []string
	many int // number of differences that are not in bad
}

// A frontend is a map key. sdk.Frontend cannot be one, because its Sources are a slice.
type frontend struct {
	name   sdk.Name
	kind   sdk.Kind
	addr   netip.AddrPort
	policy sdk.Policy
}

func (f frontend) String() string { return fmt.Sprintf("%s at %s", f.name, f.addr) }

// maxShown is the number of differences that the error lists.
const maxShown = 5

// Expect returns a Verifier for the Services that a dataplane was sent and has confirmed.
func Expect(sent []sdk.Service) *Verifier {
	v := &Verifier{want: map[frontend][]netip.AddrPort{}, seen: map[frontend]bool{}}
	for _, svc := range sent {
		for _, f := range svc.Frontends {
			v.want[frontend{svc.Name, f.Kind, f.Addr, f.Policy}] = addrs(svc.Endpoints(f.Policy))
		}
	}
	return v
}

func addrs(endpoints []sdk.Endpoint) []netip.AddrPort {
	var all []netip.AddrPort
	for _, ep := range endpoints {
		all = append(all, ep.Addr)
	}
	return sorted(all)
}

func sorted(all []netip.AddrPort) []netip.AddrPort {
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}

// Saw records a frontend that the kernel serves. It ignores unexpected ones: they may belong to
// Services that failed or are withheld, and a swap does not depend on them.
func (v *Verifier) Saw(s sdk.Served) {
	k := frontend{s.Name, s.Frontend.Kind, s.Frontend.Addr, s.Frontend.Policy}
	want, wanted := v.want[k]
	if !wanted {
		return
	}
	v.seen[k] = true
	if got := sorted(slices.Clone(s.Endpoints)); !slices.Equal(got, want) {
		v.differs("%s leads to %v, not to %v", k, got, want)
	}
}

// Differences returns an error that lists the frontends that are not served as sent, or nil.
func (v *Verifier) Differences() error {
	for k := range v.want {
		if !v.seen[k] {
			v.differs("%s is not served", k)
		}
	}
	if len(v.bad) == 0 {
		return nil
	}
	slices.Sort(v.bad)
	text := strings.Join(v.bad, "; ")
	if v.many > 0 {
		text += fmt.Sprintf("; and %d more", v.many)
	}
	if len(v.seen) == 0 {
		text += "; its Inspect names none of all that it was sent: in Standby it has to name what it would serve when Active"
	}
	return fmt.Errorf("the kernel does not serve what it was told: %s", text)
}

func (v *Verifier) differs(format string, args ...any) {
	if len(v.bad) == maxShown {
		v.many++
		return
	}
	v.bad = append(v.bad, fmt.Sprintf(format, args...))
}
