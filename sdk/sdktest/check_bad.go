// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// unknown is a value that no version knows yet.
const unknown = 99

// bad is a Service that has a mistake and can stand beside those of a scenario.
func bad(mistake func(*sdk.Service)) sdk.Service {
	s := sdk.Service{
		Name:      sdk.Name{Namespace: "ns9", Service: "bad", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort("127.30.9.9:20099"), Policy: sdk.Cluster}},
	}
	mistake(&s)
	return s
}

func unknownProtocol(s *sdk.Service) { s.Name.Protocol = unknown }
func unknownFamily(s *sdk.Service)   { s.Name.Family = unknown }
func unknownKind(s *sdk.Service)     { s.Frontends[0].Kind = unknown }
func unknownPolicy(s *sdk.Service)   { s.Frontends[0].Policy = unknown }

// isolates checks that a Service with a mistake fails, and that all others of its update are
// served.
func isolates(mistake func(*sdk.Service)) func(*trial) {
	return func(t *trial) {
		bad, s := bad(mistake), t.scenario("cluster-ip")
		u := s.Update(0)
		u.Set = append([]sdk.Service{bad}, u.Set...)
		t.failsFor(u, bad.Name)
		t.role(sdk.Active)
		t.during("beside a bad Service")
		t.serves(s)
		t.sync(sdk.Update{Delete: []sdk.Name{bad.Name}})
	}
}

// failsFor expects an update to be taken but for one Service.
func (t *trial) failsFor(u sdk.Update, name sdk.Name) {
	r, err := t.offer(u)
	if err != nil {
		t.fail(mismatch{fmt.Sprintf("Failed to name %s, and the update to be taken", name), "the update failed: " + err.Error()})
	}
	if len(r.Failed) != 1 || r.Failed[0].Name != name || r.Failed[0].Err == nil {
		t.fail(mismatch{fmt.Sprintf("Failed to name %s, and why", name), fmt.Sprintf("%v", r.Failed)})
	}
}

// badKeepsWhatServed: a Service that turns bad is served as before, and once it
// is mended it goes in.
func badKeepsWhatServed(t *trial) {
	s := t.scenario("cluster-ip")
	t.serve(s)
	worse := s.Services[0]
	worse.Frontends = slices.Clone(worse.Frontends)
	unknownPolicy(&worse)
	t.during("after its Service turned bad")
	for range 2 { // offered again, it is bad again
		t.failsFor(sdk.Update{Set: []sdk.Service{worse}}, worse.Name)
		t.serves(s)
	}
	mended := s
	mended.Services = slices.Clone(s.Services)
	mended.Services[0].Cluster = mended.Services[0].Cluster[:1]
	mended = mended.withOutcomes()
	t.during("after it was mended")
	t.sync(sdk.Update{Set: mended.Services})
	t.serves(mended)
}

// addressNotOurs: a Service whose address the node lacks is taken like any other.
// As a limit says, it fails, and all others of its update are served.
func addressNotOurs(t *trial) {
	s := t.scenario("cluster-ip")
	other := sdk.Service{
		Name:      sdk.Name{Namespace: "ns9", Service: "elsewhere", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort("172.30.9.9:20099"), Policy: sdk.Cluster}},
		Cluster:   s.Services[0].Cluster,
	}
	u := s.Update(0)
	u.Set = append(u.Set, other)
	t.during("offered %s in Standby, an address that the node lacks", other.Frontends[0].Addr)
	if !limited(t.description, sdk.LimitOwnAddressesOnly) {
		t.sync(u)
		return
	}
	t.failsFor(u, other.Name)
	t.role(sdk.Active)
	t.during("beside a Service at %s", other.Frontends[0].Addr)
	t.serves(s)
	t.fail(by(sdk.LimitOwnAddressesOnly))
}
