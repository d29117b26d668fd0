// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/pointsman/pointsman/sdk/wire"
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

// TestWireDocStart: the page has the cookie that plugins look for, and the fields of describe.
func TestWireDocStart(t *testing.T) {
	text, cookie := read(t, wireDoc), wire.Handshake()
	if want := "| `" + cookie.MagicCookieKey + "` | `" + cookie.MagicCookieValue + "`"; !strings.Contains(text, want) {
		t.Errorf("the page does not have %s", want)
	}
	var sample struct {
		Name, Version    string
		Major            uint32
		Features, Limits []string
	}
	_, block, _ := strings.Cut(text, "```describe\n")
	block, _, _ = strings.Cut(block, "```")
	d := json.NewDecoder(strings.NewReader(block))
	d.DisallowUnknownFields()
	if err := d.Decode(&sample); err != nil || sample.Major != wire.Major || len(sample.Features) == 0 || len(sample.Limits) == 0 {
		t.Errorf("describe on the page is %+v: %v", sample, err)
	}
}
