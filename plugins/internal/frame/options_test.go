// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"errors"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestParseOptions decodes options over their defaults. It refuses unknown options, and names the known ones.
func TestParseOptions(t *testing.T) {
	type options struct {
		Backend string `json:"backend"`
		Local   bool   `json:"local"`
	}
	defaults := options{"auto", true}
	for _, tc := range []struct {
		data            string
		want            options
		field, why, try string // of the Refusal
	}{
		{"", defaults, "", "", ""},
		{"null", defaults, "", "", ""},
		{`{"backend": null}`, defaults, "", "", ""},
		{`{"backend": "nft"}`, options{"nft", true}, "", "", ""},
		{`{"local": false, "backnd": 1}`, defaults, "options.backnd", "unknown option", "one of backend, local"},
		{`{"Backend": "nft"}`, defaults, "options.Backend", "unknown option", "one of backend, local"},
		{`{"backend": 1}`, defaults, "options.backend", "want a string, not a number", "pointsman plugin info m, which lists the options"},
		{`[]`, defaults, "options", "json: cannot unmarshal array into Go value of type map[string]json.RawMessage", "pointsman plugin info m, which lists the options"},
	} {
		got := defaults
		err := ParseOptions("m", []byte(tc.data), &got)
		refusal, refused := errors.AsType[*sdk.Refusal](err)
		switch {
		case tc.field == "" && (err != nil || got != tc.want):
			t.Errorf("%s: got %+v, %v", tc.data, got, err)
		case tc.field != "" && (!refused || *refusal != sdk.Refusal{Field: tc.field, Why: tc.why, Try: tc.try}):
			t.Errorf("%s: got %+v", tc.data, err)
		}
	}
}
