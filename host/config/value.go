// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A field is one value of a Host, with its path: "linux.conntrack.min".
type field struct {
	path  string
	value reflect.Value
	keep  func() // brings a new value into the Host
}

// fields lists the values of h in the order of its definition. What h does not
// have (a source that is not set, a plugin not named) has no fields.
func fields(h *Host) []field { return under("", reflect.ValueOf(h).Elem()) }

func under(path string, v reflect.Value) []field {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return nil
	case v.Kind() == reflect.Pointer:
		return under(path, v.Elem())
	case v.Kind() == reflect.Map:
		return entries(path, v.Interface().(map[string]Plugin))
	case v.Kind() != reflect.Struct:
		return []field{{path, v, func() {}}}
	}
	var all []field
	for _, f := range reflect.VisibleFields(v.Type()) {
		if name := f.Tag.Get("yaml"); name != "" {
			all = append(all, under(join(path, name), v.FieldByIndex(f.Index))...)
		}
	}
	return all
}

// entries lists the values of plugins, which stand in a map: what it lists are copies.
func entries(path string, plugins map[string]Plugin) []field {
	var all []field
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		plugin := plugins[name]
		for _, f := range under(join(path, name), reflect.ValueOf(&plugin).Elem()) {
			f.keep = func() { plugins[name] = plugin }
			all = append(all, f)
		}
	}
	return all
}

// names returns the fields that a mapping of type t may have, with their types.
func names(t reflect.Type) map[string]reflect.Type {
	all := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("yaml"); name != "" {
			all[name] = f.Type
		}
	}
	return all
}

// withSources returns a Host that has both sources and the named plugins, so that
// fields lists every field that can be set.
func withSources(plugins ...string) *Host {
	h := &Host{Source: Source{Kubernetes: &Kubernetes{}, Files: &Files{}}, Plugins: make(map[string]Plugin)}
	for _, name := range plugins {
		h.Plugins[name] = Plugin{}
	}
	return h
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// leafName returns the last name of a path.
func leafName(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// setNode sets dst to what a file says.
func setNode(dst reflect.Value, n *yaml.Node) error {
	switch {
	case dst.Kind() != reflect.Slice:
		return setScalarNode(dst, n)
	case n.Kind == yaml.SequenceNode:
		return setEach(dst, n.Content, setScalarNode)
	case n.Kind == yaml.ScalarNode && !isNull(n):
		return fmt.Errorf("want a list, [%s], not %s", n.Value, describe(n))
	}
	return fmt.Errorf("want a list, such as [a, b], not %s", describe(n))
}

// setScalarNode keeps what YAML can tell apart apart: 5 is no text, "5" no number.
func setScalarNode(dst reflect.Value, n *yaml.Node) error {
	want := formOf(dst.Type())
	if n.Kind != yaml.ScalarNode || !strings.Contains(want.tags, n.Tag) || n.Tag == "" {
		return fmt.Errorf("want %s, not %s", want.words, describe(n))
	}
	return setText(dst, n.Value)
}

// setText sets dst to what the environment or a flag says; a list is separated
// by commas.
func setText(dst reflect.Value, text string) error {
	if dst.Kind() == reflect.Slice {
		return setEach(dst, strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' }), setText)
	}
	want := formOf(dst.Type())
	v, err := want.parse(text)
	if err != nil {
		return fmt.Errorf("want %s, not %q", want.words, text)
	}
	dst.Set(reflect.ValueOf(v))
	return nil
}

// setEach sets dst, a list, by what each of its items is to be.
func setEach[T any](dst reflect.Value, items []T, set func(reflect.Value, T) error) error {
	list := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		if err := set(list.Index(i), item); err != nil {
			return err
		}
	}
	dst.Set(list)
	return nil
}

// A form is what values of one type look like: in words, and which of YAML's tags they
// may have.
type form struct {
	words, tags string
	parse       func(string) (any, error)
}

func formOf(t reflect.Type) form {
	switch t {
	case reflect.TypeFor[bool]():
		return form{"true or false", "!!bool", by(strconv.ParseBool)}
	case reflect.TypeFor[int]():
		return form{"a whole number", "!!int", by(parseInt)}
	case reflect.TypeFor[float64]():
		return form{"a number", "!!int !!float", by(parseFloat)}
	case reflect.TypeFor[time.Duration]():
		return form{"a time with its unit, such as 30s or 1h30m", "!!str", by(parseDuration)}
	case reflect.TypeFor[netip.Prefix]():
		return form{"a range of addresses, such as 10.0.0.0/8 or fd00::/8", "!!str", by(parsePrefix)}
	}
	return form{"text", "!!str", func(text string) (any, error) { return text, nil }}
}

func by[T any](parse func(string) (T, error)) func(string) (any, error) {
	return func(text string) (any, error) { return parse(text) }
}

// parseInt reads 14, and 0xe and 131_072 as YAML has them.
func parseInt(text string) (int, error) {
	v, err := strconv.ParseInt(text, 0, 32)
	return int(v), err
}

func parseFloat(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && (math.IsInf(v, 0) || math.IsNaN(v)) {
		return 0, errors.New("not finite")
	}
	return v, err
}

// parseDuration wants a unit, also for zero: 30 alone could be anything.
func parseDuration(text string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, errors.New("no unit")
	}
	return time.ParseDuration(text)
}

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Addr().Is4In6() {
		return p, errors.New("IPv4 written as IPv6")
	}
	return p.Masked(), err
}

// describe names what stands in a file, for errors.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "fields of its own"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind != yaml.ScalarNode:
		return "an alias"
	case n.Tag == "!!null":
		return `nothing (leave the line out, or write "")`
	case n.Tag == "!!int" || n.Tag == "!!float":
		return "the number " + n.Value
	case n.Tag == "!!bool":
		return n.Value
	}
	return fmt.Sprintf("%q", n.Value)
}
