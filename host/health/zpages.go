// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"
)

// zpage serves the object that Kubernetes components return at such a page: as JSON to clients
// that prefer it, else as text, a line for each field.
func zpage(kind string, object func() (map[string]any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o, err := object()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if acceptsJSON(r) {
			o["kind"], o["apiVersion"], o["metadata"] = kind, "config.k8s.io/v1beta1", map[string]string{"name": "pointsman"}
			body, err := json.Marshal(o)
			write(w, http.StatusOK, body, err)
			return
		}
		fields := make(map[string]any)
		flatten("", o, fields)
		text := "pointsman " + strings.ToLower(kind) + "\n\n"
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			text += fmt.Sprintf("%s: %s\n", field, fields[field])
		}
		writeText(w, text)
	}
}

// acceptsJSON reports whether the client accepts JSON, and prefers it to text.
func acceptsJSON(r *http.Request) bool {
	for _, part := range strings.Split(r.Header.Get("Accept"), ",") {
		switch media, _, _ := mime.ParseMediaType(part); media {
		case "text/plain", "text/*", "*/*":
			return false
		case "application/json":
			return true
		}
	}
	return false
}

// statusz returns the uptime of the host and its other paths.
func (s *Server) statusz(paths []string) map[string]any {
	return map[string]any{
		"startTime":     s.started.UTC().Format(time.RFC3339),
		"uptimeSeconds": int64(s.settings.Now().Sub(s.started).Seconds()),
		"goVersion":     runtime.Version(),
		"binaryVersion": s.settings.Version,
		"paths":         paths,
	}
}

// flagz returns the current settings, each field's value as text.
func (s *Server) flagz() (map[string]any, error) {
	settings, err := s.settings.Config()
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(settings, &tree); err != nil {
		return nil, err
	}
	flags := make(map[string]any)
	flatten("", tree, flags)
	return map[string]any{"flags": flags}, nil
}

// flatten adds the fields of a tree by path, each value as text.
func flatten(prefix string, tree, into map[string]any) {
	for name, value := range tree {
		if child, ok := value.(map[string]any); ok {
			flatten(prefix+name+".", child, into)
		} else {
			into[prefix+name] = strings.Trim(fmt.Sprint(value), "[]")
		}
	}
}
