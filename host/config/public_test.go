// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestPublic(t *testing.T) {
	for _, tt := range []struct{ in, want, removed string }{
		{`{"mode":"ipvs","plugins":{}}`, `{"mode":"ipvs","plugins":{}}`, ""},
		{`{"plugins":{"x":{"path":"/x","options":{"apiToken":"hush","n":7,"on":true}}}}`,
			`{"plugins":{"x":{"path":"/x","options":{"apiToken":"(secret)","n":"(secret)","on":"(secret)"}}}}`, "hush"},
		{`{"plugins":{"x":{"options":{"deep":[{"key":"hush"}]}}}}`, `{"plugins":{"x":{"options":{"deep":"(secret)"}}}}`, "hush key"},
		{`{"plugins":{"x":{"options":["hush"]}}}`, `{"plugins":{"x":{"options":"(secret)"}}}`, "hush"},
	} {
		public, removed, err := Public([]byte(tt.in))
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := json.Unmarshal(public, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(err)
		}
		slices.Sort(removed)
		if !reflect.DeepEqual(got, want) || strings.Join(removed, " ") != tt.removed {
			t.Errorf("Public(%s) = %s, removed %q; want %s, removed %q", tt.in, public, removed, tt.want, tt.removed)
		}
	}
	if _, _, err := Public([]byte("no JSON")); err == nil {
		t.Error("Public accepted text that is no JSON")
	}
}
