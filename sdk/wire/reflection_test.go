// SPDX-License-Identifier: Apache-2.0

//go:build unix

package wire

import (
	"path/filepath"
	"slices"
	"testing"

	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

// TestReflection: a plugin that listens by itself tells tools which calls it has.
func TestReflection(t *testing.T) {
	address := "unix://" + filepath.Join(shortDir(t), "own", "s")
	listening(t, address)
	target, err := At(address)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Attach(soon(t), target)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stream, err := reflectionpb.NewServerReflectionClient(r.conn).ServerReflectionInfo(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range reply.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, want := range []string{"pointsman.dataplane.v1.Dataplane", "pointsman.hello.Hello"} {
		if !slices.Contains(names, want) {
			t.Errorf("it has %v, not %s", names, want)
		}
	}
}
