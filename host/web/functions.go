// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

// functions are what templates say values by.
var functions = template.FuncMap{
	"ago":        ago,
	"at":         func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"count":      phrase.Count,
	"list":       phrase.List[string],
	"some":       phrase.Some,
	"looks":      looks,
	"memory":     memory,
	"percent":    func(share float64) string { return fmt.Sprintf("%.3g%%", 100*share) },
	"seconds":    func(n int) string { return (time.Duration(n) * time.Second).String() },
	"serviceURL": serviceURL,
	"portName":   func(s admin.Service, p *admin.Port) string { return s.PortName(*p) },
	"ownerURL":   ownerURL,
}

// ago says how long t is over at now; "-": it is not known.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return phrase.Since(t, now)
}

// looks returns the class by which a state is shown. The state itself is always beside it, in words.
func looks(state string) string {
	switch state {
	case "served", "serving", "forward", "ok":
		return "good"
	case "pending", "starting", "trying", "no endpoints", "cannot tell", "pass":
		return "wait"
	case "unused", "stopped":
		return "idle"
	}
	return "bad"
}

// memory returns bytes as people read them.
func memory(bytes uint64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

func serviceURL(namespace, name string) string {
	return "/services/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// ownerURL returns where the Service is shown that a port belongs to, which is named as events do:
// "shop/web:http/tcp4".
func ownerURL(port string) string {
	namespace, rest, _ := strings.Cut(port, "/")
	return serviceURL(namespace, rest[:len(rest)-len(strings.TrimLeftFunc(rest, func(r rune) bool { return r != ':' && r != '/' }))])
}
