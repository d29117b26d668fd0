// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Each pair of functions below is one value's way out and its way in. A value
// that this version does not know survives both, so that Service.Check refuses
// it by name.

func encodeName(n sdk.Name) *pb.Name {
	return &pb.Name{
		Namespace: n.Namespace,
		Service:   n.Service,
		Port:      n.Port,
		Protocol:  pb.Protocol(n.Protocol),
		Family:    pb.Family(n.Family),
	}
}

func decodeName(n *pb.Name) sdk.Name {
	return sdk.Name{
		Namespace: n.GetNamespace(),
		Service:   n.GetService(),
		Port:      n.GetPort(),
		Protocol:  sdk.Protocol(enum(int32(n.GetProtocol()))),
		Family:    sdk.Family(enum(int32(n.GetFamily()))),
	}
}

// checkName reports why n cannot travel, if so.
func checkName(n sdk.Name) error {
	if !utf8All(n.Namespace, n.Service, n.Port) {
		return fmt.Errorf("name %q is not UTF-8", n)
	}
	return nil
}

func encodeService(s *sdk.Service) (*pb.Service, error) {
	if err := checkName(s.Name); err != nil {
		return nil, err
	}
	out := &pb.Service{
		Name:          encodeName(s.Name),
		AffinityNanos: int64(s.Affinity),
		HealthPort:    uint32(s.HealthPort),
		Hints:         s.Hints,
	}
	for k, v := range s.Hints {
		if !utf8All(k, v) {
			return nil, fmt.Errorf("hint %q is not UTF-8", k)
		}
	}
	var err error
	if out.Frontends, err = each(s.Frontends, encodeFrontend); err != nil {
		return nil, err
	}
	if out.Cluster, err = packEndpoints(s.Cluster); err != nil {
		return nil, err
	}
	if out.Local, err = packEndpoints(s.Local); err != nil {
		return nil, err
	}
	if out.Serving, err = packAddrs(s.Serving); err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}
	return out, nil
}

func decodeService(s *pb.Service) (sdk.Service, error) {
	out := sdk.Service{
		Name:     decodeName(s.GetName()),
		Affinity: time.Duration(s.GetAffinityNanos()),
		Hints:    s.GetHints(),
	}
	var err error
	if out.HealthPort, err = port(s.GetHealthPort()); err != nil {
		return out, fmt.Errorf("health port: %w", err)
	}
	if out.Frontends, err = each(s.GetFrontends(), decodeFrontend); err != nil {
		return out, fmt.Errorf("frontend: %w", err)
	}
	if out.Cluster, err = unpackEndpoints(s.GetCluster()); err != nil {
		return out, fmt.Errorf("cluster: %w", err)
	}
	if out.Local, err = unpackEndpoints(s.GetLocal()); err != nil {
		return out, fmt.Errorf("local: %w", err)
	}
	if out.Serving, err = unpackAddrs(s.GetServing()); err != nil {
		return out, fmt.Errorf("serving: %w", err)
	}
	return out, nil
}

func encodeFrontend(f sdk.Frontend) (*pb.Frontend, error) {
	addr, err := encodeAddr(f.Addr.Addr())
	if err != nil {
		return nil, fmt.Errorf("frontend %s: %w", f, err)
	}
	sources, err := encodePrefixes(f.Sources)
	if err != nil {
		return nil, fmt.Errorf("frontend %s: %w", f, err)
	}
	return &pb.Frontend{
		Kind:    pb.Kind(f.Kind),
		Addr:    addr,
		Port:    uint32(f.Addr.Port()),
		Policy:  pb.Policy(f.Policy),
		Sources: sources,
	}, nil
}

func decodeFrontend(f *pb.Frontend) (sdk.Frontend, error) {
	addr, err := decodeAddr(f.GetAddr())
	if err != nil {
		return sdk.Frontend{}, err
	}
	p, err := port(f.GetPort())
	if err != nil {
		return sdk.Frontend{}, err
	}
	sources, err := decodePrefixes(f.GetSources())
	if err != nil {
		return sdk.Frontend{}, err
	}
	return sdk.Frontend{
		Kind:    sdk.Kind(enum(int32(f.GetKind()))),
		Addr:    netip.AddrPortFrom(addr, p),
		Policy:  sdk.Policy(enum(int32(f.GetPolicy()))),
		Sources: sources,
	}, nil
}

func port(p uint32) (uint16, error) {
	if p > 0xffff {
		return 0, fmt.Errorf("a port of %d", p)
	}
	return uint16(p), nil
}
