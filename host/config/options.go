// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// takeOptions notes a plugin's options. They are the plugin's to judge: here
// they only become JSON, with every key as it was written.
func (r *reader) takeOptions(n *yaml.Node, path string) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.bad(n, path, "want the plugin's options and their values, not "+describe(n), "")
		return
	}
	before := len(r.problems)
	options := r.plain(n, path)
	if len(r.problems) > before {
		return
	}
	data, err := json.Marshal(options)
	if err != nil {
		r.bad(n, path, err.Error(), "")
		return
	}
	name := strings.Split(path, ".")[1] // plugins.NAME.options, and a NAME has no dot
	r.options[name] = data
}

// plain returns the value of n in maps, slices and scalars that JSON knows.
func (r *reader) plain(n *yaml.Node, path string) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any)
		r.pairs(n, path, func(key, value *yaml.Node) { m[key.Value] = r.plain(value, join(path, key.Value)) })
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = r.plain(item, path)
		}
		return list
	case yaml.ScalarNode:
		return r.scalar(n, path)
	}
	r.bad(n, path, "anchors, aliases and merges are not read here", "write the value out")
	return nil
}

func (r *reader) scalar(n *yaml.Node, path string) any {
	if !slices.Contains([]string{"!!bool", "!!int", "!!float", "!!null"}, n.Tag) {
		return n.Value // also what YAML takes for a date
	}
	var v any
	if err := n.Decode(&v); err != nil {
		r.bad(n, path, "cannot be read: "+err.Error(), "")
		return nil
	}
	if f, ok := v.(float64); ok && (math.IsInf(f, 0) || math.IsNaN(f)) {
		r.bad(n, path, "want a finite number, not "+n.Value, "")
		return nil
	}
	return v
}
