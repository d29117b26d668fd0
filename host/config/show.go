// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pointsman/pointsman/host/phrase"
)

// A Setting is one field in force, and where its value came from.
type Setting struct {
	Field  string `json:"field"`
	Value  any    `json:"value"` // string, bool, int, float64, []string, or json.RawMessage
	Origin Origin `json:"origin"`
}

// Settings lists every field that is in force, in the order of defaults.yaml.
func (h *Host) Settings() []Setting {
	var all []Setting
	for _, f := range fields(h) {
		v, ok := plainValue(f.value)
		if unsaid := (v == "" || v == false) && strings.HasPrefix(f.path, "plugins."); ok && !unsaid {
			all = append(all, Setting{f.path, v, h.Origin(f.path)})
		}
	}
	return all
}

// plainValue returns a value as a file would have it; not ok: it was not given.
func plainValue(v reflect.Value) (plain any, ok bool) {
	switch v := v.Interface().(type) {
	case time.Duration:
		return brief(v), true
	case []netip.Prefix:
		return phrase.Texts(v), true
	case []string:
		return append([]string{}, v...), true
	case json.RawMessage:
		return v, v != nil
	default:
		return v, true
	}
}

// YAML returns the settings in force as a file that would bring them about; with
// origins, each line says where its value came from.
func (h *Host) YAML(origins bool) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(h.tree(origins)); err != nil {
		return nil, fmt.Errorf("show config: %w", err)
	}
	return out.Bytes(), nil
}

// JSON returns the same as YAML. With origins it is a list of fields instead, because
// JSON has no comments.
func (h *Host) JSON(origins bool) ([]byte, error) {
	if origins {
		doc := struct {
			APIVersion string    `json:"apiVersion"`
			Kind       string    `json:"kind"`
			Settings   []Setting `json:"settings"`
		}{APIVersion, "HostConfigOrigins", h.Settings()}
		return json.MarshalIndent(doc, "", "  ")
	}
	var tree any
	if err := h.tree(false).Decode(&tree); err != nil {
		return nil, fmt.Errorf("show config: %w", err)
	}
	return json.MarshalIndent(tree, "", "  ")
}

// tree returns the settings as YAML, in the order of fields.
func (h *Host) tree(origins bool) *yaml.Node {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range h.Settings() {
		n := nodeOf(s.Value)
		if origins {
			n.LineComment = s.Origin.String()
		}
		plant(root, strings.Split(s.Field, "."), n)
	}
	if child(root, "plugins") == nil {
		plant(root, []string{"plugins"}, &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle})
	}
	return root
}

// plant puts n at a path below root, each key in the line of n.
func plant(root *yaml.Node, path []string, n *yaml.Node) {
	for i, name := range path {
		next := child(root, name)
		if next == nil {
			next = &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
			if i == len(path)-1 {
				next = n
			}
			key := nodeOf(name)
			key.Line = n.Line
			root.Content = append(root.Content, key, next)
		}
		root = next
	}
}

func nodeOf(value any) *yaml.Node {
	n := &yaml.Node{}
	if raw, ok := value.(json.RawMessage); ok {
		if err := yaml.Unmarshal(raw, &value); err != nil { // JSON is YAML
			value = string(raw)
		}
	}
	if err := n.Encode(value); err != nil {
		n.SetString(fmt.Sprint(value))
	}
	if n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
	return n
}

// brief returns a duration without the zeros that Go appends: 24h, not 24h0m0s.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
