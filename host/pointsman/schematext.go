// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A schema is as much of a JSON schema as people need to write options by.
type schema struct {
	Type        any               `json:"type"` // a word, or several
	Enum        []json.RawMessage `json:"enum"`
	Default     json.RawMessage   `json:"default"`
	Description string            `json:"description"`
	Properties  map[string]schema `json:"properties"`
	Items       *schema           `json:"items"`
	Fixed       bool              `json:"x-pointsman-fixed"`
}

// schemaLines returns the options of a schema as text, a line each, those within another below it. What
// is no schema is returned as it is.
func schemaLines(text json.RawMessage) []string {
	if len(text) == 0 {
		return nil
	}
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		return []string{string(text)}
	}
	if len(s.Properties) == 0 {
		return []string{"none"}
	}
	return s.lines("")
}

func (s schema) lines(indent string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		line := indent + name + ": " + p.kind()
		if len(p.Default) > 0 {
			line += ", default " + plainJSON(p.Default)
		}
		if p.Fixed {
			line += ", fixed while it serves"
		}
		if p.Description != "" {
			line += " - " + p.Description
		}
		all = append(all, line)
		all = append(all, p.lines(indent+"  ")...)
		if p.Items != nil {
			all = append(all, p.Items.lines(indent+"  ")...)
		}
	}
	return all
}

// kind returns which values there may be.
func (s schema) kind() string {
	var values []string
	for _, v := range s.Enum {
		values = append(values, plainJSON(v))
	}
	switch {
	case len(values) > 0:
		return strings.Join(values, "|")
	case s.Items != nil:
		return "list of " + s.Items.kind()
	}
	switch t := s.Type.(type) {
	case string:
		return t
	case []any:
		for _, v := range t {
			values = append(values, fmt.Sprint(v))
		}
		return strings.Join(values, " or ")
	}
	return "anything"
}

// plainJSON returns a value as it would stand in the config file.
func plainJSON(v json.RawMessage) string {
	var text string
	if json.Unmarshal(v, &text) == nil && text != "" {
		return text
	}
	return string(v)
}
