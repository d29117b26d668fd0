// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// packetsAreSent ensures that no dataplane conforms without a single packet.
func packetsAreSent(t *trial) {
	s := t.calling("cluster-ip", 1)
	t.serve(s)
	t.need(t.packets(s))
}

// scenarioChecks returns one check for each scenario with packets that reach an endpoint
// (contract line 2), or with packets that do not (contract line 1).
func scenarioChecks(prefix string, endpoint bool) []check {
	var all []check
	for _, s := range Scenarios() {
		s.Packets = slices.DeleteFunc(s.Packets, func(p Packet) bool {
			return (p.Want.Verdict == sdk.Forward && !p.Want.Unserved) != endpoint
		})
		if len(s.Packets) > 0 {
			all = append(all, check{name: prefix + s.Name, run: func(t *trial) { t.show(s) }})
		}
	}
	return all
}

// show serves one scenario and sends its packets.
func (t *trial) show(s Scenario) {
	if lacks := s.Lacks(t.description); len(lacks) > 0 {
		t.fail(excused{"does not claim " + join(lacks)})
	}
	if t.subject.Testbed == nil {
		t.fail(noPackets)
	}
	s, leftOut := t.place(s)
	if len(s.Packets) == 0 {
		slices.Sort(leftOut)
		t.fail(excused{"this testbed can express none of the packets: " + strings.Join(slices.Compact(leftOut), "; ")})
	}
	t.serve(s)
	t.need(t.packets(s))
}

// affinity checks that a client keeps its endpoint when it connects to one address of the
// Service, or to several. With LimitAffinityPerFrontend it keeps one endpoint per address.
func affinity(addresses int) func(*trial) {
	return func(t *trial) {
		s := t.calling("affinity", 2)
		t.serve(s)
		stage, err := t.stage(s)
		t.need(err)
		defer stage.Close()
		forEach := addresses > 1 && limited(t.description, sdk.LimitAffinityPerFrontend)
		kept := make(map[netip.AddrPort]netip.AddrPort)
		for i := range 13 {
			p := s.Packets[0]
			p.To = s.Packets[i*(i+1)/2%addresses].To // not in round-robin order
			a, err := stage.Send(t.ctx, p)
			t.need(err)
			client := netip.AddrPort{}
			if forEach {
				client = p.To
			}
			first, ok := kept[client]
			if a.Verdict != sdk.Forward || ok && a.Endpoint != first {
				t.fail(mismatch{fmt.Sprintf("a client of %s to keep its endpoint %s", p.To, first), a.String()})
			}
			kept[client] = a.Endpoint
		}
		if forEach {
			t.fail(by(sdk.LimitAffinityPerFrontend))
		}
	}
}

// unknown is a value that no version knows.
const unknown = 99

// isolates checks that a Service with a mistake fails, and that all other Services of its
// update are served.
func isolates(mistake func(*sdk.Service)) func(*trial) {
	return func(t *trial) {
		s := t.scenario("cluster-ip")
		bad := sdk.Service{
			Name:      sdk.Name{Namespace: "ns9", Service: "bad", Protocol: sdk.TCP, Family: sdk.IPv4},
			Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort("127.30.9.9:20099"), Policy: sdk.Cluster}},
		}
		mistake(&bad)
		u := s.Update(0)
		u.Set = append([]sdk.Service{bad}, u.Set...)
		t.failsFor(u, bad.Name)
		t.role(sdk.Active)
		t.during("beside a bad Service")
		t.serves(s)
		t.sync(sdk.Update{Delete: []sdk.Name{bad.Name}})
	}
}

// failsFor checks that an update succeeds except for one Service.
func (t *trial) failsFor(u sdk.Update, name sdk.Name) {
	r, err := t.sendUpdate(u)
	if err != nil {
		t.fail(mismatch{fmt.Sprintf("Failed to name %s, and the update to be taken", name), "the update failed: " + err.Error()})
	}
	if len(r.Failed) != 1 || r.Failed[0].Name != name || r.Failed[0].Err == nil {
		t.fail(mismatch{fmt.Sprintf("Failed to name %s, and why", name), fmt.Sprintf("%v", r.Failed)})
	}
}

// badKeepsWhatServed checks that a Service that becomes invalid is served as before, and that
// it succeeds once it is corrected.
func badKeepsWhatServed(t *trial) {
	s := t.scenario("cluster-ip")
	t.serve(s)
	worse := s.Services[0]
	worse.Frontends = slices.Clone(worse.Frontends)
	worse.Frontends[0].Policy = unknown
	t.during("after its Service became invalid")
	for range 2 { // a retry fails in the same way
		t.failsFor(sdk.Update{Set: []sdk.Service{worse}}, worse.Name)
		t.serves(s)
	}
	mended := s
	mended.Services = slices.Clone(s.Services)
	mended.Services[0].Cluster = mended.Services[0].Cluster[:1]
	mended = mended.withOutcomes()
	t.during("after it was corrected")
	t.sync(sdk.Update{Set: mended.Services})
	t.serves(mended)
}

// addressNotOurs checks that a Service whose address the node lacks is served like any other.
// With LimitOwnAddressesOnly it fails, and all other Services of its update are served.
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
	moved := sdk.Service{Name: s.Services[0].Name, Frontends: other.Frontends, Cluster: other.Cluster} // fails, and is served as before
	t.failsFor(sdk.Update{Set: []sdk.Service{moved}, Delete: []sdk.Name{other.Name}}, moved.Name)
	t.serves(s)
	t.fail(by(sdk.LimitOwnAddressesOnly))
}
