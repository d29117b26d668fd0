// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
)

// TestSchemaLines: the options of a plugin as `plugin info` shows them.
func TestSchemaLines(t *testing.T) {
	for _, c := range []struct {
		schema string
		want   []string
	}{
		{"", nil},
		{`{"type": "object"}`, []string{"none"}},
		{`not a schema`, []string{"not a schema"}},
		{`{"type": "object", "properties": {
			"udpIdleTimeout": {"type": "string", "default": "250ms", "description": "how long"},
			"redirect": {"enum": ["auto", "never"], "default": "auto", "x-pointsman-fixed": true},
			"count": {"type": ["integer", "null"], "default": 0},
			"name": {"type": "string", "default": ""},
			"any": {},
			"excludeCIDRs": {"type": "array", "items": {"type": "string"}, "default": []},
			"limits": {"type": "object", "properties": {"max": {"type": "integer"}}},
			"peers": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer"}}}}
		}}`, []string{
			"any: anything",
			"count: integer or null, default 0",
			"excludeCIDRs: list of string, default []",
			"limits: object",
			"  max: integer",
			`name: string, default ""`,
			"peers: list of object",
			"  port: integer",
			"redirect: auto|never, default auto, fixed while it serves",
			"udpIdleTimeout: string, default 250ms - how long",
		}},
	} {
		if got := schemaLines([]byte(c.schema)); !slices.Equal(got, c.want) {
			t.Errorf("%s\ngot  %q\nwant %q", c.schema, got, c.want)
		}
	}
}
