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
	for k, v := range s.Hints {
		if !utf8All(k, v) {
			return nil, fmt.Errorf("hint %q is not UTF-8", k)
		}
	}
	var c conversion
	out := &pb.Service{
		Name:          encodeName(s.Name),
		Frontends:     list(&c, "frontend", s.Frontends, encodeFrontend),
		Cluster:       field(&c, "cluster", s.Cluster, packEndpoints),
		Local:         field(&c, "local", s.Local, packEndpoints),
		Serving:       field(&c, "serving", s.Serving, packAddrs),
		AffinityNanos: int64(s.Affinity),
		HealthPort:    uint32(s.HealthPort),
		Hints:         s.Hints,
	}
	return out, c.err
}

// decodeService returns the name also with an error: so that it is known what to set aside.
func decodeService(s *pb.Service) (sdk.Service, error) {
	var c conversion
	out := sdk.Service{
		Name:       decodeName(s.GetName()),
		Frontends:  list(&c, "frontend", s.GetFrontends(), decodeFrontend),
		Cluster:    field(&c, "cluster", s.GetCluster(), unpackEndpoints),
		Local:      field(&c, "local", s.GetLocal(), unpackEndpoints),
		Serving:    field(&c, "serving", s.GetServing(), unpackAddrs),
		Affinity:   time.Duration(s.GetAffinityNanos()),
		HealthPort: field(&c, "health port", s.GetHealthPort(), port),
		Hints:      s.GetHints(),
	}
	return out, c.err
}

func encodeFrontend(f sdk.Frontend) (*pb.Frontend, error) {
	var c conversion
	out := &pb.Frontend{
		Kind:    pb.Kind(f.Kind),
		Addr:    field(&c, "address", f.Addr.Addr(), encodeAddr),
		Port:    uint32(f.Addr.Port()),
		Policy:  pb.Policy(f.Policy),
		Sources: list(&c, "sources", f.Sources, encodePrefix),
	}
	return out, c.err
}

func decodeFrontend(f *pb.Frontend) (sdk.Frontend, error) {
	var c conversion
	out := sdk.Frontend{
		Kind:    sdk.Kind(enum(int32(f.GetKind()))),
		Addr:    netip.AddrPortFrom(field(&c, "address", f.GetAddr(), decodeAddr), field(&c, "port", f.GetPort(), port)),
		Policy:  sdk.Policy(enum(int32(f.GetPolicy()))),
		Sources: list(&c, "sources", f.GetSources(), decodePrefix),
	}
	return out, c.err
}

func port(p uint32) (uint16, error) {
	if p > 0xffff {
		return 0, fmt.Errorf("a port of %d", p)
	}
	return uint16(p), nil
}
