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

// zpagesVersion is the apiVersion of the objects that Kubernetes components return at /statusz
// and /flagz.
const zpagesVersion = "config.k8s.io/v1beta1"

// A zpage holds the common fields.
type zpage struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   map[string]string `json:"metadata"`
}

func newZpage(kind string) zpage {
	return zpage{kind, zpagesVersion, map[string]string{"name": "pointsman"}}
}

// statuszObject returns the uptime of the host and its other paths.
func (s *Server) statuszObject(paths []string) (any, error) {
	return struct {
		zpage
		StartTime     string   `json:"startTime"`
		UptimeSeconds int64    `json:"uptimeSeconds"`
		GoVersion     string   `json:"goVersion"`
		BinaryVersion string   `json:"binaryVersion"`
		Paths         []string `json:"paths"`
	}{newZpage("Statusz"), s.started.UTC().Format(time.RFC3339), int64(s.settings.Now().Sub(s.started).Seconds()),
		runtime.Version(), s.settings.Version, paths}, nil
}

// flagzObject returns the current settings, each field's value as text.
func (s *Server) flagzObject() (any, error) {
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
	return struct {
		zpage
		Flags map[string]string `json:"flags"`
	}{newZpage("Flagz"), flags}, nil
}

func flatten(prefix string, tree map[string]any, into map[string]string) {
	for name, value := range tree {
		switch value := value.(type) {
		case map[string]any:
			flatten(prefix+name+".", value, into)
		case []any:
			into[prefix+name] = strings.Trim(fmt.Sprint(value), "[]")
		default:
			into[prefix+name] = fmt.Sprint(value)
		}
	}
}

// asks reports whether a client wants a page as an object of that kind, and whether it accepts
// any form that we have: the object or text.
func asks(r *http.Request, kind string) (object, ok bool) {
	accept := r.Header.Get("Accept")
	if strings.TrimSpace(accept) == "" {
		return false, true
	}
	group, version, _ := strings.Cut(zpagesVersion, "/")
	wanted := map[string]string{"g": group, "v": version, "as": kind}
	for _, part := range strings.Split(accept, ",") {
		media, params, err := mime.ParseMediaType(part)
		switch {
		case err != nil:
		case media == "text/plain", media == "text/*", media == "*/*":
			return false, true
		case media == "application/json" && matches(params, wanted):
			return true, true
		}
	}
	return false, false
}

// matches reports whether no parameter contradicts wanted.
func matches(params, wanted map[string]string) bool {
	for name, value := range wanted {
		if given, ok := params[name]; ok && !strings.EqualFold(given, value) {
			return false
		}
	}
	return true
}

// negotiated serves the object if the client asks for that kind, else the text.
func negotiated(kind string, object func() (any, error), text http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch asObject, ok := asks(r, kind); {
		case !ok:
			http.Error(w, "there is text/plain, and application/json;g=config.k8s.io;v=v1beta1;as="+kind, http.StatusNotAcceptable)
		case asObject:
			o, err := object()
			body, failed := json.Marshal(o)
			write(w, http.StatusOK, body, errors.Join(err, failed))
		default:
			text(w, r)
		}
	}
}
