// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

const wireDoc = "../docs/wire.md"

// An example is a message of the page in both forms.
type example struct {
	name  string
	bytes []byte
	json  string
}

var wireExamples = regexp.MustCompile("(?s)```message (\\S+)\n(.*?)```\n\n```json\n(.*?)```")

func examplesOf(t *testing.T, text string) (all []example) {
	t.Helper()
	comment := regexp.MustCompile(`(?m)#.*$|\s+`)
	for _, m := range wireExamples.FindAllStringSubmatch(text, -1) {
		b, err := hex.DecodeString(comment.ReplaceAllString(m[2], ""))
		if err != nil {
			t.Fatalf("%s: %v", m[1], err)
		}
		all = append(all, example{m[1], b, m[3]})
	}
	return all
}

// TestWireDoc decodes the bytes of each example, compares the message with its JSON, and encodes it to the same bytes
// again.
func TestWireDoc(t *testing.T) {
	text := read(t, wireDoc)
	all := examplesOf(t, text)
	if n := strings.Count(text, "```message "); n < 8 || len(all) != n {
		t.Fatalf("the page has %d messages, and %d with their JSON", n, len(all))
	}
	for _, e := range all {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(e.name))
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		fromBytes, fromJSON := kind.New().Interface(), kind.New().Interface()
		if err := proto.Unmarshal(e.bytes, fromBytes); err != nil {
			t.Errorf("%s: %v", e.name, err)
		}
		if err := protojson.Unmarshal([]byte(e.json), fromJSON); err != nil {
			t.Errorf("%s: %v", e.name, err)
		}
		if len(fromBytes.ProtoReflect().GetUnknown()) > 0 || !proto.Equal(fromBytes, fromJSON) {
			t.Errorf("%s: the bytes decode to %v, and the JSON to %v", e.name, fromBytes, fromJSON)
		}
		if again, err := (proto.MarshalOptions{Deterministic: true}).Marshal(fromJSON); err != nil || !bytes.Equal(again, e.bytes) {
			t.Errorf("%s: the JSON is written as %x, not %x: %v", e.name, again, e.bytes, err)
		}
	}
}
