// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"unicode"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
)

func newLog(l config.Logging, w io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Level:      hclog.LevelFromString(l.Level),
		JSONFormat: l.Format == "json",
		Output:     w,
		TimeFormat: "2006-01-02T15:04:05.000Z07:00",
	})
}

// logged is the sink that writes events to the log.
func logged(log hclog.Logger) report.Sink {
	return func(e report.Event) {
		args := []any{}
		if e.Object != "" {
			args = append(args, keyOf(e), e.Object)
		}
		args = append(args, "why", e.Message)
		if e.Count > 1 {
			args = append(args, "times", e.Count)
		}
		if e.Warning {
			log.Warn(sentence(e.Reason), args...)
		} else {
			log.Info(sentence(e.Reason), args...)
		}
	}
}

// keyOf says what the object of an event is.
func keyOf(e report.Event) string {
	switch {
	case strings.HasPrefix(e.Reason, "Service"), strings.HasPrefix(e.Reason, "Frontend"):
		return "service"
	case strings.HasPrefix(e.Reason, "Plugin"), strings.HasPrefix(e.Reason, "Dataplane"), e.Reason == report.SyncFailed:
		return "plugin"
	}
	return "object"
}

// sentence is a reason as a log line says it: "PluginDown" is "plugin down".
func sentence(reason string) string {
	var b strings.Builder
	for i, r := range reason {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// noticed reports what the tracker and the sources notice.
func noticed(r *report.Reporter) func(track.Notice) {
	return func(n track.Notice) {
		r.Report(report.Event{Warning: n.Warning, Reason: n.Reason, Object: n.Object, Message: n.Message})
	}
}
