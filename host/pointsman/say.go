// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"log"
	"regexp"
	"strings"

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

// serverLog has an HTTP server of the host's own write to the log, a line for each thing that
// it has to say.
func serverLog(to hclog.Logger, server string) *log.Logger {
	return log.New(serverLines{to, server}, "", 0)
}

type serverLines struct {
	log    hclog.Logger
	server string
}

func (s serverLines) Write(text []byte) (int, error) {
	s.log.Warn("http server", "server", s.server, "err", strings.TrimPrefix(strings.TrimSpace(string(text)), "http: "))
	return len(text), nil
}

// logged returns the sink that writes events to the log.
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

// Between a small letter and a capital a word begins, and with the last capital of several
// before a small one.
var (
	wordBegins      = regexp.MustCompile(`([^A-Z])([A-Z])`)
	afterAllCapital = regexp.MustCompile(`([A-Z])([A-Z][^A-Z ])`)
)

// sentence returns a reason as a log line says it: "PluginDown" is "plugin down".
// Letters that stand for words stay as they are: "ExternalIPRefused" is "external IP refused".
func sentence(reason string) string {
	words := strings.Fields(afterAllCapital.ReplaceAllString(wordBegins.ReplaceAllString(reason, "$1 $2"), "$1 $2"))
	for i, word := range words {
		if word != strings.ToUpper(word) {
			words[i] = strings.ToLower(word)
		}
	}
	return strings.Join(words, " ")
}

// noticed reports what the tracker and the sources notice.
func noticed(r *report.Reporter) func(track.Notice) {
	return func(n track.Notice) {
		r.Report(report.Event{Warning: n.Warning, Reason: n.Reason, Object: n.Object, Message: n.Message})
	}
}
