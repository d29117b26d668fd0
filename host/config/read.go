// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pointsman/pointsman/host/phrase"
)

// A reader goes through one file beside the definition of Host, and notes what
// is given, where, and everything that should not be there.
type reader struct {
	layer    Layer
	file     string
	given    map[string]any    // values by path: a *yaml.Node, or of options JSON
	plugins  []string          // named in the file
	origins  map[string]Origin // of values and of what holds them
	problems Problems
	warnings Problems // of what is read, and does not count

	kubeProxy json.RawMessage // the file, where it is kube-proxy's
}

// read goes through the content of file.
func read(layer Layer, file string, data []byte) *reader {
	r := &reader{
		layer: layer, file: file,
		given:   make(map[string]any),
		origins: make(map[string]Origin),
	}
	root := r.document(data)
	if root != nil && isKubeProxy(root) {
		r.kubeProxy = jsonOf(root)
		root = r.fromKubeProxy(root)
		clear(r.origins) // of kube-proxy's own fields
	}
	if root != nil && r.ours(root) {
		r.origins[""] = r.at(root)
		r.structure(root, "", reflect.TypeFor[Host]())
	}
	return r
}

// broken reports whether the file could not be gone through.
func (r *reader) broken() bool {
	_, begun := r.origins[""]
	return !begun
}

func (r *reader) bad(n *yaml.Node, path, why, try string) {
	r.problems = append(r.problems, Problem{Where: r.at(n), Field: path, Why: why, Try: try})
}

func (r *reader) at(n *yaml.Node) Origin { return Origin{Layer: r.layer, Name: r.file, Line: n.Line} }

// document returns the one mapping that the file must hold.
func (r *reader) document(data []byte) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF), err == nil && (len(doc.Content) == 0 || isNull(doc.Content[0])):
		r.bad(&yaml.Node{}, "", "is empty", "pointsman config defaults prints a file to begin with")
		return nil
	case err != nil:
		r.syntax(err)
		return nil
	case doc.Content[0].Kind != yaml.MappingNode:
		r.bad(doc.Content[0], "", "want fields and their values, not "+describe(doc.Content[0]), "pointsman config defaults prints a file to begin with")
		return nil
	}
	if err := dec.Decode(&second); err == nil {
		r.bad(&second, "", "a second document begins here", "keep one")
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
	}
	return doc.Content[0]
}

// syntax notes what the YAML parser says, with its line where a line belongs.
func (r *reader) syntax(err error) {
	line, why := phrase.YAML(err)
	r.bad(&yaml.Node{Line: line}, "", "is no YAML: "+why, "")
}

// ours reports whether the file is of the one kind that this version reads.
func (r *reader) ours(root *yaml.Node) bool {
	version, kind := child(root, "apiVersion"), child(root, "kind")
	switch {
	case version == nil || kind == nil:
		r.bad(root, "", "does not say what it is", fmt.Sprintf("begin it with the lines apiVersion: %s and kind: %s", APIVersion, Kind))
	case version.Value == APIVersion && kind.Value == Kind:
		return true
	case kind.Value != Kind:
		r.bad(kind, "kind", fmt.Sprintf("%q is unknown", kind.Value), "write kind: "+Kind)
	default:
		r.bad(version, "apiVersion", fmt.Sprintf("%q is unknown to this version", version.Value), "write apiVersion: "+APIVersion)
	}
	return false
}

// structure goes through a mapping whose fields are those of the struct t.
func (r *reader) structure(n *yaml.Node, path string, t reflect.Type) {
	known := names(t)
	r.pairs(n, path, func(key, value *yaml.Node) {
		ft, ok := known[key.Value]
		if !ok {
			r.unknown(key, path, known)
			return
		}
		r.value(value, join(path, key.Value), ft)
	})
}

// pairs calls each for every pair of a mapping, and notes keys given twice.
func (r *reader) pairs(n *yaml.Node, path string, each func(key, value *yaml.Node)) {
	first := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || value.Kind == yaml.AliasNode || key.Tag == "!!merge" {
			r.bad(key, join(path, key.Value), "anchors, aliases and merges are not read here", "write the value out")
			continue
		}
		if line, twice := first[key.Value]; twice {
			r.bad(key, join(path, key.Value), fmt.Sprintf("given twice, first in line %d", line), "keep one")
			continue
		}
		first[key.Value] = key.Line
		r.origins[join(path, key.Value)] = r.at(key)
		each(key, value)
	}
}

// value takes one field in, by what it is to hold.
func (r *reader) value(n *yaml.Node, path string, t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		r.takeOptions(n, path)
	case t.Kind() != reflect.Struct && t.Kind() != reflect.Map:
		r.given[path] = n
	case isNull(n): // "linux:" with everything below commented out
	case n.Kind != yaml.MappingNode:
		r.bad(n, path, "want fields and their values, not "+describe(n), "")
	case t.Kind() == reflect.Struct:
		r.structure(n, path, t)
	default:
		r.pairs(n, path, func(key, value *yaml.Node) { r.plugin(key, value, join(path, key.Value)) })
	}
}

// plugin notes the section of one plugin, whose key is its name.
func (r *reader) plugin(key, value *yaml.Node, path string) {
	if !isName(key.Value) {
		r.bad(key, path, "is no plugin's name: want lower-case letters, digits and -", "")
		return
	}
	r.plugins = append(r.plugins, key.Value)
	r.value(value, path, reflect.TypeFor[Plugin]())
}

// unknown notes a field that it is not known, and looks for the one that was meant:
// here first, then by the same name elsewhere.
func (r *reader) unknown(key *yaml.Node, path string, known map[string]reflect.Type) {
	here := slices.Collect(maps.Keys(known))
	why, try := "unknown field", ""
	if meant := suggest(key.Value, here); strings.EqualFold(meant, key.Value) {
		why, try = "unknown field: case matters", "write "+meant
	} else if elsewhere := whereIs(key.Value); elsewhere != "" {
		try = "that is " + elsewhere
	} else if to := kubeProxyMoves("", DetectClusterCIDR)[join(path, key.Value)].to; to != "" {
		try = "that is kube-proxy's; here it is " + to
	} else {
		try = DidYouMean(key.Value, here)
	}
	r.bad(key, join(path, key.Value), why, try)
}

// whereIs finds the one field of this name, wherever it stands; empty: none or several.
func whereIs(name string) string {
	var found []string
	for _, f := range fields(withSources()) {
		if leafName(f.path) == name {
			found = append(found, f.path)
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return ""
}

// child returns the value of a key in a mapping; nil: there is none.
func child(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

var nameSyntax = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// isName reports whether name can be a plugin's.
func isName(name string) bool { return nameSyntax.MatchString(name) }

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
	r.given[path] = json.RawMessage(data)
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
