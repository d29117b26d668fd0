// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"runtime"
	"strings"
	"time"
)

// zpage serves a page for people or, to clients that accept JSON first, the object that
// Kubernetes components return there.
func zpage(kind string, object func() (map[string]any, error), text http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !acceptsJSON(r) {
			text(w, r)
			return
		}
		o, err := object()
		if err == nil {
			o["kind"], o["apiVersion"], o["metadata"] = kind, "config.k8s.io/v1beta1", map[string]string{"name": "pointsman"}
		}
		body, failed := json.Marshal(o)
		write(w, http.StatusOK, body, errors.Join(err, failed))
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

// statuszObject returns the uptime of the host and its other paths.
func (s *Server) statuszObject(paths []string) map[string]any {
	return map[string]any{
		"startTime":     s.started.UTC().Format(time.RFC3339),
		"uptimeSeconds": int64(s.settings.Now().Sub(s.started).Seconds()),
		"goVersion":     runtime.Version(),
		"binaryVersion": s.settings.Version,
		"paths":         paths,
	}
}

// flagzObject returns the current settings, each field's value as text.
func (s *Server) flagzObject() (map[string]any, error) {
	settings, err := s.settings.Config()
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(settings, &tree); err != nil {
		return nil, err
	}
	flags := make(map[string]string)
	flatten("", tree, flags)
	return map[string]any{"flags": flags}, nil
}

func flatten(prefix string, tree map[string]any, into map[string]string) {
	for name, value := range tree {
		if child, ok := value.(map[string]any); ok {
			flatten(prefix+name+".", child, into)
		} else {
			into[prefix+name] = strings.Trim(fmt.Sprint(value), "[]")
		}
	}
}
