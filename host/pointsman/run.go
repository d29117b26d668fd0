// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/dataplanes"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
)

func runVerb() *cobra.Command {
	c := verb("run", "Run the host: watch Services and update the dataplane", cobra.NoArgs)
	c.RunE = func(c *cobra.Command, _ []string) error {
		run := func(ctx context.Context, logs io.Writer) error { return runHost(ctx, c, logs) }
		done, err := asService(run)
		if !done {
			err = run(c.Context(), c.ErrOrStderr())
		}
		if errors.Is(err, dataplanes.ErrNoPlugin) {
			return usageError{err}
		}
		return err
	}
	config.AddFlags(c.Flags())
	return c
}

// runHost runs the host that the flags of c describe until ctx ends, which it does with the first
// SIGINT or SIGTERM. A second or more after that a signal ends the process at once. Earlier ones
// are the same signal: PR_SET_PDEATHSIG (prctl(2)) sends one for each thread of a killed parent.
func runHost(ctx context.Context, c *cobra.Command, logs io.Writer) error {
	s, err := settings(c)
	if err != nil {
		return err
	}
	tuneGC()
	h, err := newHost(s, c.Flags(), logs)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		h.log.Info("host stopping", "cause", context.Cause(ctx))
		time.Sleep(time.Second)
		signal.Reset(os.Interrupt, syscall.SIGTERM)
	})()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	h.hangup = hangup
	return h.run(ctx)
}

// tuneGC makes Go collect the host's garbage twice as often as by default, unless GOGC is set. A
// node's memory is for its pods; the first Full takes a quarter less memory, and a change costs
// the same. Plugins are not tuned: most memory of a first Full is soon garbage, they return it at
// the end of the update, and collecting twice as often took a quarter longer.
func tuneGC() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(50)
	}
}

// partLimit is how long a part may take to end. A part that waits for a file system that does not
// answer may never end, and must not keep the host from ending.
const partLimit = 2 * time.Second

// runParts runs the parts of the host in goroutines until ctx ends. If a part fails, the others
// continue to serve. runParts returns when the part named main, which has time limits of its own,
// has ended, and the others have ended or partLimit is over.
func runParts(ctx context.Context, log hclog.Logger, parts map[string]func(context.Context) error, main string) {
	ended := make(chan string, len(parts))
	for name, run := range parts {
		go func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				log.Error("part of the host failed", "part", name, "err", err)
			}
			ended <- name
		}()
	}
	late := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		time.Sleep(partLimit)
		close(late)
	})()
	for left := slices.Sorted(maps.Keys(parts)); len(left) > 0; {
		limit := late
		if slices.Contains(left, main) {
			limit = nil
		}
		select {
		case name := <-ended:
			left = slices.DeleteFunc(left, func(other string) bool { return other == name })
		case <-limit:
			log.Warn("host does not wait for parts that do not end", "parts", phrase.List(left))
			return
		}
	}
}

func newLog(h *config.Host, w io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Level:      hclog.LevelFromString(h.Logging.Level),
		JSONFormat: h.Logging.Format == "json",
		Output:     w,
		TimeFormat: "2006-01-02T15:04:05.000Z07:00",
	})
}

// serverLog returns the logger for the errors of one of the host's HTTP servers.
func serverLog(to hclog.Logger, server string) *log.Logger {
	return to.With("server", server).StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn})
}

// logged returns the sink that writes events to the log.
func logged(log hclog.Logger) report.Sink {
	return func(e report.Event) {
		args := []any{}
		if e.Object != "" {
			args = append(args, objectKey(e.Reason), e.Object)
		}
		args = append(args, "why", e.Message)
		if e.Count > 1 {
			args = append(args, "times", e.Count)
		}
		level := hclog.Info
		if e.Warning {
			level = hclog.Warn
		}
		log.Log(level, logMessage(e.Reason), args...)
	}
}

// objectKey returns the log's key for the object of an event: what kind of object it is.
func objectKey(reason string) string {
	switch {
	case strings.HasPrefix(reason, "Service"), strings.HasPrefix(reason, "Frontend"):
		return "service"
	case strings.HasPrefix(reason, "Plugin"), strings.HasPrefix(reason, "Dataplane"), reason == report.SyncFailed:
		return "plugin"
	}
	return "object"
}

// A word begins between a small letter and a capital, and with the last of several capitals before
// a small letter.
var (
	wordBegins      = regexp.MustCompile(`([^A-Z])([A-Z])`)
	afterAllCapital = regexp.MustCompile(`([A-Z])([A-Z][^A-Z ])`)
)

// logMessage returns the log message for a reason: "PluginDown" is "plugin down", and
// "ExternalIPRefused" is "external IP refused".
func logMessage(reason string) string {
	words := strings.Fields(afterAllCapital.ReplaceAllString(wordBegins.ReplaceAllString(reason, "$1 $2"), "$1 $2"))
	for i, word := range words {
		if word != strings.ToUpper(word) {
			words[i] = strings.ToLower(word)
		}
	}
	return strings.Join(words, " ")
}

// reportNotices returns a function that reports the notices of the tracker and the sources, except
// those about the canary's Service: no user made it, and the swap reports its result.
func reportNotices(r *report.Reporter) func(track.Notice) {
	return func(n track.Notice) {
		if !strings.HasPrefix(n.Object, canary.Namespace+"/canary") {
			r.Report(report.Event{Warning: n.Warning, Reason: n.Reason, Object: n.Object, Message: n.Message})
		}
	}
}
