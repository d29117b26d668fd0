// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// unknown is a value that no version knows yet.
const unknown = 99

// bad is a Service that nobody can serve, beside those of a scenario.
func bad() sdk.Service {
	return sdk.Service{
		Name:      sdk.Name{Namespace: "ns9", Service: "bad", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: unknown, Addr: netip.MustParseAddrPort("127.30.9.9:20099"), Policy: sdk.Cluster}},
	}
}

func unknownProtocol(t *trial) error {
	s := bad()
	s.Frontends[0].Kind, s.Name.Protocol = sdk.ClusterIP, unknown
	return t.isolates(s)
}

func unknownFamily(t *trial) error {
	s := bad()
	s.Frontends[0].Kind, s.Name.Family = sdk.ClusterIP, unknown
	return t.isolates(s)
}

func unknownKind(t *trial) error { return t.isolates(bad()) }

func unknownPolicy(t *trial) error {
	s := bad()
	s.Frontends[0].Kind, s.Frontends[0].Policy = sdk.ClusterIP, unknown
	return t.isolates(s)
}

// oneBadService: it fails, and all others of its update are served.
func oneBadService(t *trial) error { return t.isolates(bad()) }

func (t *trial) isolates(bad sdk.Service) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	u := s.Update(0)
	u.Set = append([]sdk.Service{bad}, u.Set...)
	r, err := t.offer(u)
	if err := failedFor(r, err, bad.Name); err != nil {
		return err
	}
	if err := t.role(sdk.Active); err != nil {
		return err
	}
	if err := t.serves(s); err != nil {
		return fmt.Errorf("beside a bad Service: %w", err)
	}
	return t.sync(sdk.Update{Delete: []sdk.Name{bad.Name}})
}

// failedFor checks that an update was taken but for one Service.
func failedFor(r sdk.Result, err error, name sdk.Name) error {
	if err != nil {
		return mismatch{fmt.Sprintf("Failed to name %s, and the update to be taken", name), "the update failed: " + err.Error()}
	}
	if len(r.Failed) != 1 || r.Failed[0].Name != name || r.Failed[0].Err == nil {
		return mismatch{fmt.Sprintf("Failed to name %s, and why", name), fmt.Sprintf("%v", r.Failed)}
	}
	return nil
}

// badKeepsWhatServed: a Service that turns bad is served as before, and once it
// is mended it goes in.
func badKeepsWhatServed(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	if err := t.serve(s); err != nil {
		return err
	}
	worse := s.Services[0]
	worse.Frontends = slices.Clone(worse.Frontends)
	worse.Frontends[0].Policy = unknown
	for range 2 { // offered again, it is bad again
		r, err := t.offer(sdk.Update{Set: []sdk.Service{worse}})
		if err := failedFor(r, err, worse.Name); err != nil {
			return err
		}
		if err := t.serves(s); err != nil {
			return fmt.Errorf("after its Service turned bad: %w", err)
		}
	}
	mended := s
	mended.Services = slices.Clone(s.Services)
	mended.Services[0].Cluster = mended.Services[0].Cluster[:1]
	mended = mended.judged()
	if err := t.sync(sdk.Update{Set: mended.Services}); err != nil {
		return err
	}
	if err := t.serves(mended); err != nil {
		return fmt.Errorf("after it was mended: %w", err)
	}
	return nil
}

// addressNotOurs: a Service whose address the node lacks is taken like any other.
// As a limit says, it fails, and all others of its update are served.
func addressNotOurs(t *trial) error {
	s, err := t.scenario("cluster-ip")
	if err != nil {
		return err
	}
	other := sdk.Service{
		Name:      sdk.Name{Namespace: "ns9", Service: "elsewhere", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort("172.30.9.9:20099"), Policy: sdk.Cluster}},
		Cluster:   s.Services[0].Cluster,
	}
	u := s.Update(0)
	u.Set = append(u.Set, other)
	r, err := t.offer(u)
	if err != nil {
		return err
	}
	if !limited(t.description, sdk.LimitOwnAddressesOnly) {
		if len(r.Failed) > 0 {
			return mismatch{"an address that the node lacks to be served", fmt.Sprintf("%v", r.Failed)}
		}
		return nil
	}
	if err := failedFor(r, nil, other.Name); err != nil {
		return fmt.Errorf("offered %s in Standby, an address that the node lacks: %w", other.Frontends[0].Addr, err)
	}
	if err := t.role(sdk.Active); err != nil {
		return err
	}
	if err := t.serves(s); err != nil {
		return fmt.Errorf("beside a Service at %s: %w", other.Frontends[0].Addr, err)
	}
	return by(sdk.LimitOwnAddressesOnly)
}

// settledOrNoGround is settled, for packets that only add to what was inspected.
func settledOrNoGround(err error) error {
	var left notRun
	if errors.As(err, &left) {
		return nil
	}
	return settled(err)
}
