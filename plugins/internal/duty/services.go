// SPDX-License-Identifier: Apache-2.0

package duty

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// Touched are the names of the Services that must be looked at after a change of
// state: those that changed; all, when the node did; and after a Full also those that
// the dataplane had, for it removes what it does not name.
func Touched(state sdk.State, c sdk.Changes, had iter.Seq[sdk.Name]) map[sdk.Name]bool {
	names := make(map[sdk.Name]bool)
	for _, change := range c.Services {
		names[change.Name] = true
	}
	if c.Full || c.Node {
		for name := range state.Services {
			names[name] = true
		}
	}
	if c.Full {
		for name := range had {
			names[name] = true
		}
	}
	return names
}

// UDP are the UDP Services that changed, as they are now: their flows may lead
// nowhere. One that failed is served as before, and so are its flows.
func UDP(state sdk.State, c sdk.Changes, failed []sdk.Failure) []sdk.Service {
	services := make(map[sdk.Name]sdk.Service)
	for _, change := range c.Services {
		if change.After != nil && change.Name.Protocol == sdk.UDP {
			services[change.Name] = *change.After
		}
	}
	if c.Full {
		for name, svc := range state.Services {
			if name.Protocol == sdk.UDP {
				services[name] = svc
			}
		}
	}
	for _, f := range failed {
		delete(services, f.Name)
	}
	return slices.Collect(maps.Values(services))
}

// Narrow is a description without the families that the node lacks.
func Narrow(d sdk.Description, has func(sdk.Family) bool) sdk.Description {
	d.Features = slices.DeleteFunc(slices.Clone(d.Features), func(f sdk.Feature) bool {
		return f == sdk.FeatureIPv4 && !has(sdk.IPv4) || f == sdk.FeatureIPv6 && !has(sdk.IPv6)
	})
	return d
}

// OnLink reports whether addr means another machine on each link, as IPv6's link-local
// addresses do: to listen there, or to have a virtual server there, takes the link's name
// too. 169.254.0.0/16 has no such names.
func OnLink(addr netip.Addr) bool { return addr.Is6() && addr.IsLinkLocalUnicast() }
