// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// sendUpdate sends u in chunks. It omits Services that cannot be encoded, and returns them as
// failures.
func sendUpdate(session string, u sdk.Update, send func(*pb.UpdateChunk) error) (failed []sdk.Failure, err error) {
	head := &pb.UpdateHead{Session: session, From: u.From, To: u.To, Full: u.Full, Node: encodeNode(u.Node)}
	c := &chunker[pb.UpdateChunk]{send: send, most: chunkSize, chunk: &pb.UpdateChunk{Head: head}, size: proto.Size(head) + itemOverhead}
	for i := range u.Set {
		svc := encodeService(&u.Set[i])
		if refusal := unsendable(svc); refusal != nil {
			failed = append(failed, sdk.Failure{Name: u.Set[i].Name, Err: refusal})
		} else if err := add(c, svc, func(m *pb.UpdateChunk) *[]*pb.Service { return &m.Set }); err != nil {
			return nil, err
		}
	}
	for _, name := range u.Delete {
		if n := encodeName(name); utf8All(n.Namespace, n.Service, n.Port) { // otherwise no Service with this name was ever sent
			if err := add(c, n, func(m *pb.UpdateChunk) *[]*pb.Name { return &m.Delete }); err != nil {
				return nil, err
			}
		}
	}
	return failed, c.flush()
}

// unsendable returns a *sdk.Refusal for a Service that does not fit into a chunk, or that
// protobuf would refuse to encode, which would block the others. Nil if it can be sent.
func unsendable(svc *pb.Service) error {
	if !utf8All(svc.Name.Namespace, svc.Name.Service, svc.Name.Port) {
		return &sdk.Refusal{Why: "its name is not UTF-8, and cannot be sent to a plugin"}
	}
	if size := proto.Size(svc); size+itemOverhead > chunkSize {
		return &sdk.Refusal{
			Field: "endpoints",
			Why:   fmt.Sprintf("a Service with %d endpoints takes %d bytes, and no plugin is sent more than %d of one", max(svc.Cluster.GetCount(), svc.Local.GetCount()), size, chunkSize-itemOverhead),
			Try:   "several Services, or a trafficDistribution that keeps traffic near",
		}
	}
	return nil
}

// An incoming update is assembled from chunks.
type incoming struct {
	session string
	update  sdk.Update
	failed  []sdk.Failure // Services left out because this version does not understand them
	headed  bool
}

// add adds one chunk.
func (in *incoming) add(c *pb.UpdateChunk) error {
	if in.headed == (c.Head != nil) {
		return errors.New("update: its head is not in its first chunk alone")
	}
	if h := c.Head; h != nil {
		node, err := decodeNode(h.Node)
		if err != nil {
			return fmt.Errorf("update: %w", err)
		}
		in.headed, in.session = true, h.Session
		in.update = sdk.Update{From: h.From, To: h.To, Full: h.Full, Node: node}
	}
	for _, s := range c.Set {
		in.set(s)
	}
	for _, n := range c.Delete {
		in.update.Delete = append(in.update.Delete, decodeName(n))
	}
	return nil
}

// set adds a Service to the update. It omits a Service that this version does not understand
// and adds it to failed, so that it never blocks the others (contract lines 4 and 13). What
// served it before stays until a Full.
func (in *incoming) set(s *pb.Service) {
	svc, err := decodeService(s)
	if err == nil {
		err = svc.Check()
	}
	if err == nil {
		in.update.Set = append(in.update.Set, svc)
		return
	}
	in.failed = append(in.failed, sdk.Failure{Name: svc.Name, Err: &sdk.Refusal{
		Why: "this plugin does not understand the Service: " + err.Error(),
		Try: "a version of the plugin that is as new as the host",
	}})
}

func encodeFailure(f sdk.Failure) *pb.Failure {
	if f.Err == nil {
		f.Err = errors.New("the dataplane does not say why (its Failure has no Err)")
	}
	return &pb.Failure{Name: encodeName(f.Name), Problem: encodeProblem(f.Err)}
}

func decodeFailure(f *pb.Failure) (sdk.Failure, error) {
	return sdk.Failure{Name: decodeName(f.GetName()), Err: decodeProblem(f.GetProblem())}, nil
}
