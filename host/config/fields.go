// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// A field is one value of a Host, with its path: "linux.conntrack.min".
type field struct {
	path  string
	value reflect.Value
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
		return entries(path, v)
	case v.Kind() != reflect.Struct:
		return []field{{path, v}}
	}
	var all []field
	for _, f := range reflect.VisibleFields(v.Type()) {
		if name := f.Tag.Get("yaml"); name != "" {
			all = append(all, under(join(path, name), v.FieldByIndex(f.Index))...)
		}
	}
	return all
}

func entries(path string, v reflect.Value) []field {
	plugins := v.Interface().(map[string]Plugin)
	var all []field
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		plugin := plugins[name]
		all = append(all, under(join(path, name), reflect.ValueOf(&plugin).Elem())...)
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

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// leafName returns the last name of a path.
func leafName(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
