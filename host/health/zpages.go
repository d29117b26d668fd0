// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"
)

// statusz writes the uptime of the host and its other paths.
func (s *Server) statusz(paths []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, fmt.Sprintf("pointsman statusz\n\nbinaryVersion: %s\ngoVersion: %s\npaths: %s\nstartTime: %s\nuptimeSeconds: %d\n",
			s.settings.Version, runtime.Version(), strings.Join(paths, " "), s.started.UTC().Format(time.RFC3339), int64(s.settings.Now().Sub(s.started).Seconds())))
	}
}

// flagz writes the current settings, a line for each field.
func (s *Server) flagz(w http.ResponseWriter, _ *http.Request) {
	settings, err := s.settings.Config()
	var tree map[string]any
	if err == nil {
		err = json.Unmarshal(settings, &tree)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeText(w, "pointsman flagz\n\n"+fieldLines("", tree))
}

// fieldLines returns the fields of a tree by path.
func fieldLines(prefix string, tree map[string]any) (text string) {
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if child, ok := tree[name].(map[string]any); ok {
			text += fieldLines(prefix+name+".", child)
		} else {
			text += fmt.Sprintf("%s%s: %s\n", prefix, name, strings.Trim(fmt.Sprint(tree[name]), "[]"))
		}
	}
	return text
}
