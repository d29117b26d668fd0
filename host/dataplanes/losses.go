// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"slices"

	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// unservedBy returns the Services that a dataplane does not serve as they ask, and why.
func unservedBy(s track.CursorStatus) map[sdk.Name]string {
	all := make(map[sdk.Name]string)
	for _, f := range s.Failed {
		all[f.Name] = f.Err.Error()
	}
	for _, w := range s.Withheld {
		all[w.Name] = "it does not serve " + phrase.List(w.Lacks)
	}
	for _, name := range s.Kept {
		all[name] = "its process crashes on it"
	}
	return all
}

// losses returns the Services that now does serve and next does not, each with its why.
func losses(now, next track.CursorStatus) []string {
	served := unservedBy(now)
	var lost []string
	for name, why := range unservedBy(next) {
		if _, already := served[name]; !already && name.Namespace != canary.Namespace {
			lost = append(lost, name.String()+": "+why)
		}
	}
	slices.Sort(lost)
	return lost
}
