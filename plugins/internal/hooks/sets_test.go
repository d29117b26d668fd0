// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/trace"
	"github.com/pointsman/pointsman/sdk"
)

// What a set is asked for, by its kind and by the parts that a rule names.
func TestLookups(t *testing.T) {
	headers := map[string]header{"mac": {kind: "hash:mac"}, "ports": {kind: "bitmap:port"}, "one": {kind: listOfSets}, "other": {kind: listOfSets}}
	for kind := range dimensions {
		headers[kind] = header{kind: kind, family: sdk.IPv4}
	}
	headers["net6"] = header{kind: "hash:net", family: sdk.IPv6}
	k := keeper{
		header: func(set string) (header, error) {
			h, there := headers[set]
			if !there {
				return h, errors.New("there is none")
			}
			return h, nil
		},
		members: func(list string) ([]string, error) {
			return map[string][]string{"one": {"net6", "hash:ip,port", "ports"}, "other": {"mac", "hash:ip"}}[list], nil
		},
	}
	p := trace.Packet{Protocol: "tcp", From: netip.MustParseAddrPort("10.0.0.1:0"), To: netip.MustParseAddrPort("10.0.0.2:80")}
	const from, to = "10.0.0.1", "10.0.0.2"
	for _, tt := range []struct{ set, parts, want string }{
		{"hash:ip", "src", from},
		{"hash:ip", "dst,dst", to},
		{"hash:net", "dst", to},
		{"net6", "dst", "no"},
		{"ports", "dst", "80"},
		{"ports", "src", "it asks for the caller's port, which is not known"},
		{"hash:ip,port", "src,dst", from + " tcp:80"},
		{"hash:ip,port", "dst", "no"},
		{"hash:net,port", "dst,dst", to + " tcp:80"},
		{"hash:net,net", "src,dst", from + " " + to},
		{"hash:ip,port,ip", "dst,dst,src", to + " tcp:80 " + from},
		{"hash:ip,port,net", "src,dst,dst", from + " tcp:80 " + to},
		{"hash:net,port,net", "src,dst,dst", from + " tcp:80 " + to},
		{"hash:ip", "both", "the tracer does not look up both in the set hash:ip"},
		{"mac", "src", "the tracer does not look up anything in the set mac, which is of hash:mac"},
		{"gone", "src", "ask for the set gone: there is none"},
		{"one", "dst", "80"},
		{"one", "src", "in the set one: it asks for the caller's port, which is not known"},
		{"other", "src", from},
		{"other", "both", "in the set other: the tracer does not look up both in the set hash:ip"},
	} {
		asked := ""
		k.has = func(_ string, l lookup) (bool, error) {
			for _, a := range []any{l.addr, l.port, l.second} {
				switch a := a.(type) {
				case uint16:
					if l.hasPort && l.protocol == "" {
						asked += fmt.Sprint(" ", a)
					} else if l.hasPort {
						asked += fmt.Sprintf(" %s:%d", l.protocol, a)
					}
				case netip.Addr:
					if a.IsValid() {
						asked += " " + a.String()
					}
				}
			}
			return true, nil
		}
		in, err := k.member(tt.set, tt.parts, p)
		got := "no"
		if in {
			got = asked[1:]
		}
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s of %s: %s, want %s", tt.parts, tt.set, got, tt.want)
		}
	}
	k.has = func(string, lookup) (bool, error) { return false, nil }
	if in, err := k.member("other", "src", p); in || err == nil {
		t.Errorf("where one set of a list cannot be asked, and no other has it: %v, %v", in, err)
	}
}
