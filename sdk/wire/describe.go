// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

func encodeDescription(d sdk.Description) *pb.Description {
	out := &pb.Description{Name: text(d.Name), Version: text(d.Version), Options: d.Options}
	for _, f := range d.Features {
		out.Features = append(out.Features, text(string(f)))
	}
	for _, l := range d.Limits {
		out.Limits = append(out.Limits, text(string(l)))
	}
	return out
}

// decodeDescription leaves out options that are no JSON: the host shows them as a
// part of its own.
func decodeDescription(d *pb.Description) sdk.Description {
	out := sdk.Description{
		Name:     oneLine(d.GetName()),
		Version:  oneLine(d.GetVersion()),
		Features: texts[sdk.Feature](d.GetFeatures()),
		Limits:   texts[sdk.Limit](d.GetLimits()),
	}
	if json.Valid(d.GetOptions()) {
		out.Options = d.GetOptions()
	}
	return out
}

// checkDescription returns what is wrong with a Description that no host could show.
func checkDescription(d sdk.Description) error {
	var schema json.RawMessage
	if err := json.Unmarshal(d.Options, &schema); len(d.Options) > 0 && err != nil {
		return &sdk.Refusal{
			Field: "Description.Options",
			Why:   fmt.Sprintf("it is no JSON: %v", err),
			Try:   "a plugin whose author has written a JSON schema there, or nothing",
		}
	}
	return nil
}

// encodeSysctls moves by one, because the zero of the vocabulary is a meaning and
// the zero of the wire is none.
func encodeSysctls(s sdk.Sysctls) pb.Sysctls { return pb.Sysctls(s) + 1 }

func decodeSysctls(s pb.Sysctls) (sdk.Sysctls, error) {
	switch s {
	case pb.Sysctls_SYSCTLS_WRITE:
		return sdk.WriteSysctls, nil
	case pb.Sysctls_SYSCTLS_EXPECT:
		return sdk.ExpectSysctls, nil
	}
	return 0, &sdk.Refusal{
		Field: "sysctls",
		Why:   fmt.Sprintf("the host asks for %s, which this plugin does not know", s),
		Try:   "a newer version of the plugin",
	}
}

func encodeServed(s sdk.Served) (*pb.Served, error) {
	endpoints := make([]sdk.Endpoint, len(s.Endpoints))
	for i, addr := range s.Endpoints {
		endpoints[i].Addr = addr
	}
	c := conversion{checkName(s.Name)}
	out := &pb.Served{
		Name:      encodeName(s.Name),
		Frontend:  field(&c, "frontend", s.Frontend, encodeFrontend),
		Endpoints: field(&c, "endpoints", endpoints, packEndpoints),
	}
	if c.err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, c.err)
	}
	return out, nil
}

func decodeServed(s *pb.Served) (sdk.Served, error) {
	var c conversion
	out := sdk.Served{Name: decodeName(s.GetName()), Frontend: field(&c, "frontend", s.GetFrontend(), decodeFrontend)}
	for _, ep := range field(&c, "endpoints", s.GetEndpoints(), unpackEndpoints) {
		out.Endpoints = append(out.Endpoints, ep.Addr)
	}
	return out, c.err
}

func encodeAffinityEntry(s sdk.AffinityEntry) (*pb.Stick, error) {
	c := conversion{checkName(s.Name)}
	out := &pb.Stick{
		Name:         encodeName(s.Name),
		Client:       field(&c, "client", s.Client, encodeAddr),
		Endpoint:     field(&c, "endpoint", s.Endpoint.Addr(), encodeAddr),
		EndpointPort: uint32(s.Endpoint.Port()),
		LeftNanos:    int64(s.Left),
	}
	if c.err != nil {
		return nil, fmt.Errorf("client %s of %s: %w", s.Client, s.Name, c.err)
	}
	return out, nil
}

func decodeAffinityEntry(s *pb.Stick) (sdk.AffinityEntry, error) {
	var c conversion
	out := sdk.AffinityEntry{
		Name:     decodeName(s.GetName()),
		Client:   field(&c, "client", s.GetClient(), decodeAddr),
		Endpoint: netip.AddrPortFrom(field(&c, "endpoint", s.GetEndpoint(), decodeAddr), field(&c, "port", s.GetEndpointPort(), port)),
		Left:     time.Duration(s.GetLeftNanos()),
	}
	return out, c.err
}
