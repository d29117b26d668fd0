// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		in    string
		want  time.Duration
		field string // refused
	}{
		{``, 250 * time.Millisecond, ""},
		{`{}`, 250 * time.Millisecond, ""},
		{`null`, 250 * time.Millisecond, ""},
		{`{"udpIdleTimeout": "3s"}`, 3 * time.Second, ""},
		{`{"udpIdleTimeout": "0s"}`, 0, "options.udpIdleTimeout"},
		{`{"udpIdleTimeout": "2h"}`, 0, "options.udpIdleTimeout"},
		{`{"udpIdleTimeout": 250}`, 0, "options.udpIdleTimeout"},
		{`{"udpIdleTimeout": "fast"}`, 0, "options.udpIdleTimeout"},
		{`{"backend": "nft", "redirect": "always"}`, 250 * time.Millisecond, ""},
		{`{"backend": "ebpf"}`, 0, "options.backend"},
		{`{"redirect": "nevr"}`, 0, "options.redirect"},
		{`{"addresses": "always"}`, 0, "options.addresses"},
		{`{"frontends": "own"}`, 0, "options.frontends"},
		{`[]`, 0, "options"},
		{`{`, 0, "options"},
	} {
		o, err := parseOptions([]byte(c.in))
		var refusal *sdk.Refusal
		switch {
		case c.field == "" && (err != nil || o.udpIdle != c.want):
			t.Errorf("%s: %v, %v", c.in, o, err)
		case c.field != "" && (!errors.As(err, &refusal) || refusal.Field != c.field || refusal.Why == ""):
			t.Errorf("%s: %#v", c.in, err)
		}
	}
}

func TestSchemaIsJSON(t *testing.T) {
	if !json.Valid(Description.Options) {
		t.Error("the schema of the options is not JSON")
	}
}
