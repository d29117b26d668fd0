// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// An Origin is where a value came from.
type Origin struct {
	Layer Layer
	Name  string // the file, the environment variable, the flag
	Line  int    // in the file; 0 elsewhere
}

// A Layer is one of the places that settings come from; a later one wins.
type Layer uint8

// The layers.
const (
	Default Layer = iota
	File
	Env
	Flag
)

// String reads as in `config show --origin`: "host.yaml:12", "env POINTSMAN_MODE".
func (o Origin) String() string {
	switch o.Layer {
	case File:
		if o.Line == 0 {
			return o.Name
		}
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case Env:
		return "env " + o.Name
	case Flag:
		return "flag --" + o.Name
	}
	return "default"
}

// provenance is where the values of a Host came from.
type provenance struct {
	path     string
	hash     string
	origins  map[string]Origin // by field path, leaves and what holds them
	warnings []Problem
}

// Path returns the file that was read; empty when none was.
func (h *Host) Path() string { return h.from.path }

// Hash tells one content of the file from another; empty when none was read.
func (h *Host) Hash() string { return h.from.hash }

// Warnings returns what is odd but no error, such as an environment variable that
// looks like a setting and is none.
func (h *Host) Warnings() []Problem { return h.from.warnings }

// Origin says where the value of a field came from. A path below what is known,
// such as an option of a plugin, has the origin of what is nearest above it.
func (h *Host) Origin(path string) Origin {
	for {
		if o, ok := h.from.origins[path]; ok {
			return o
		}
		dot := strings.LastIndexByte(path, '.')
		if dot < 0 {
			return Origin{}
		}
		path = path[:dot]
	}
}
