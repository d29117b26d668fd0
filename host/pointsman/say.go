// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
)

// The reasons of the host's own events.
const (
	hostStarting    = "Starting"        // the host begins; kube-proxy's word
	configTaken     = "ConfigTaken"     // the config file changed, and was taken in
	configRefused   = "ConfigRefused"   // it cannot be used; the last good one stays in force
	configOdd       = "ConfigOdd"       // no error, but worth a look
	pluginServing   = "PluginServing"   // its process is up
	pluginDown      = "PluginDown"      // its process ended, hangs, or does not come up
	pluginStarting  = "PluginStarting"  // its process is started
	pluginStopped   = "PluginStopped"   // it was told to end
	pluginBanned    = "PluginBanned"    // it failed too often, and is let be for a while
	pluginPoisoned  = "PluginPoisoned"  // it dies of what it is told
	servicePoison   = "ServicePoison"   // a plugin dies of it
	serviceFreed    = "ServiceFreed"    // it changed, and is tried again
	pluginRefuses   = "PluginRefuses"   // this node cannot run it
	pluginNote      = "PluginNote"      // something about it to know
	syncFailed      = "SyncFailed"      // an update did not go in, and is tried again
	dataplaneActive = "DataplaneActive" // it was told to serve
	swapStage       = "SwapStage"       // a change of mode is under way
	swapDone        = "SwapDone"        // it was made
	swapUndone      = "SwapUndone"      // it was not, and what served before serves on
	swapNote        = "SwapNote"        // something about it to look at
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
	case strings.HasPrefix(e.Reason, "Plugin"), strings.HasPrefix(e.Reason, "Dataplane"), e.Reason == syncFailed:
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

// round makes a time fit to be read.
func round(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(time.Second / 10)
	}
	return d.Round(time.Second)
}
