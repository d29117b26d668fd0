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
	c := &cobra.Command{
		Use:   "run",
		Short: "Be the host: watch Services and keep the dataplane told",
		Long: `Run watches Services and keeps the dataplane that mode names told what this node
serves of them, until a signal ends it.

SIGINT stops the plugin too. SIGTERM leaves it serving; the next host goes on with it.
SIGHUP reads the config file again.`,
		Args: noWords(),
		RunE: func(c *cobra.Command, _ []string) error {
			run := func(ctx context.Context, logs io.Writer) error { return runHost(ctx, c, logs) }
			done, err := asService(run)
			if !done {
				err = run(c.Context(), c.ErrOrStderr())
			}
			if errors.Is(err, dataplanes.ErrNoPlugin) {
				return usageError{err}
			}
			return err
		},
	}
	config.AddFlags(c.Flags())
	return c
}

// runHost runs the host that the flags of c describe until a signal comes, or ctx ends.
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
	ctx, stop := untilSignal(ctx, func(sig os.Signal) {
		h.log.Info("host ends", "signal", sig)
	})
	defer stop()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	h.hangup = hangup
	return h.run(ctx)
}

// untilSignal returns a context that ends with the first SIGINT or SIGTERM, after came
// was called. One that comes a second later or more ends the process as it would any other.
// Sooner ones are the same signal: PR_SET_PDEATHSIG (prctl(2)) sends one for each thread of a
// parent that is killed.
func untilSignal(ctx context.Context, came func(os.Signal)) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with ctx
		defer signal.Stop(signals)
		select {
		case sig := <-signals:
			came(sig)
			cancel()
			time.Sleep(time.Second)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// untilInterrupt is for verbs that only read or wait.
func untilInterrupt(ctx context.Context) (context.Context, func()) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// tuneGC makes Go collect the host's garbage twice as often as by default. A node's memory
// is there for its pods; a first Full takes a quarter less of it, and a change costs no
// more than before. Plugins are not tuned: most of a first Full is garbage soon, they give
// that back at its end, and collecting twice as often took a quarter longer. Where GOGC is
// set already, it stays, for both.
func tuneGC() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(50)
	}
}

// partLimit is how long a part of the host has to end. One that waits for a file system
// which does not answer may not end at all, and must not keep the host from doing so.
const partLimit = 2 * time.Second

// runParts runs the parts of the host, each in a goroutine of its own that ends with ctx. One
// that fails is no reason to stop serving. It returns when all have ended; after ctx ended, the
// one named main, which has time limits of its own, and the others if they do so within partLimit.
func runParts(ctx context.Context, log hclog.Logger, parts map[string]func(context.Context) error, main string) {
	ended := make(chan string, len(parts))
	for name, run := range parts {
		go func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				log.Error("a part of the host ended", "part", name, "err", err)
			}
			ended <- name
		}()
	}
	left := slices.Sorted(maps.Keys(parts))
	done, late := ctx.Done(), (<-chan time.Time)(nil)
	over := false
	for len(left) > 0 {
		if over && !slices.Contains(left, main) {
			log.Warn("the host ends without waiting for parts of it that do not", "parts", phrase.List(left))
			return
		}
		select {
		case name := <-ended:
			left = slices.DeleteFunc(left, func(other string) bool { return other == name })
		case <-done:
			done, late = nil, time.After(partLimit)
		case <-late:
			over = true
		}
	}
}

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

// noticed reports what the tracker and the sources notice. What becomes of the canary is the swap's
// to say: no user made that Service.
func noticed(r *report.Reporter) func(track.Notice) {
	return func(n track.Notice) {
		if strings.HasPrefix(n.Object, canary.Namespace+"/canary") {
			return
		}
		r.Report(report.Event{Warning: n.Warning, Reason: n.Reason, Object: n.Object, Message: n.Message})
	}
}
