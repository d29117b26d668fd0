// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/config"
)

// A schema is the part of JSON Schema that can be checked without the plugin. The plugin checks
// the rest itself.
type schema struct {
	Type       string
	Enum       []any
	Properties map[string]schema
	Items      *schema
	Default    any
	Additional any  `json:"additionalProperties"`
	Fixed      bool `json:"x-pointsman-fixed"` // a process with another value cannot take over from the serving one
}

// misfits returns the options in h for a plugin that violate its schema.
func misfits(h *config.Host, name string, text []byte) config.Problems {
	var s schema
	options, err := decoded(h.Plugins[name].Options)
	if err != nil || options == nil || json.Unmarshal(text, &s) != nil {
		return nil // nothing to compare
	}
	var problems config.Problems
	s.compare("plugins."+name+".options", options, func(field, why, try string) {
		problems = append(problems, h.Problem(field, why, try))
	})
	return problems
}

// fixedChanged returns the options in h that differ from those the plugin runs with, but must
// not change while it serves.
func fixedChanged(h *config.Host, name string, text, runs []byte) config.Problems {
	var s schema
	now, err := decoded(runs)
	then, failed := decoded(h.Plugins[name].Options)
	if err != nil || failed != nil || json.Unmarshal(text, &s) != nil {
		return nil // nothing to compare
	}
	was, _ := now.(map[string]any)
	is, _ := then.(map[string]any)
	var problems config.Problems
	for _, option := range slices.Sorted(maps.Keys(s.Properties)) {
		value := func(of map[string]any) string { return written(cmp.Or(of[option], s.Properties[option].Default)) }
		field := "plugins." + name + ".options." + option
		if s.Properties[option].Fixed && value(was) != value(is) {
			problems = append(problems, h.Problem(field, "cannot change while "+name+" serves: what the kernel has by the former value would stay",
				"change to another mode, then the option, then back"))
		}
	}
	return problems
}

// decoded decodes JSON, and keeps numbers as they are written.
func decoded(text []byte) (v any, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return v, d.Decode(&v)
}

// compare calls bad for each part of v, the value of field, that violates the schema.
func (s schema) compare(field string, v any, bad func(field, why, try string)) {
	if v == nil {
		return // a key without a value
	}
	if s.Type != "" && !isOf(s.Type, v) {
		bad(field, fmt.Sprintf("want %s, not %s", s.Type, written(v)), "")
		return
	}
	if one := func(e any) bool { return written(e) == written(v) }; len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, one) {
		var words []string
		for _, e := range s.Enum {
			words = append(words, strings.Trim(written(e), `"`))
		}
		bad(field, fmt.Sprintf("want one of %s, not %s", strings.Join(words, ", "), written(v)), "")
	}
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if s.Items != nil {
				s.Items.compare(field, item, bad)
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			property, known := s.Properties[name]
			if !known && s.Additional == false {
				bad(field+"."+name, "unknown option", "one of "+strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
			}
			property.compare(field+"."+name, v[name], bad)
		}
	}
}

// isOf reports whether v has a JSON Schema type. For unknown types it returns true.
func isOf(name string, v any) bool {
	number, isNumber := v.(json.Number)
	is := map[string]bool{"number": isNumber, "integer": isNumber && !strings.ContainsAny(number.String(), ".eE")}
	switch v.(type) {
	case map[string]any:
		is["object"] = true
	case []any:
		is["array"] = true
	case string:
		is["string"] = true
	case bool:
		is["boolean"] = true
	}
	known := []string{"object", "array", "string", "boolean", "number", "integer"}
	return is[name] || !slices.Contains(known, name)
}

// written returns v as JSON.
func written(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
