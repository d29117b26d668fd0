// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/internal/lines"
)

// A LogLine is one line that a plugin wrote to stderr: a JSON object of its log, or plain text.
type LogLine struct {
	Time    time.Time
	Level   slog.Level
	Message string
	Attrs   []slog.Attr // values are strings
}

// String returns the line in the form for people.
func (l LogLine) String() string {
	var b strings.Builder
	b.WriteString(l.Time.Format(time.RFC3339) + " " + l.Level.String() + " " + l.Message)
	for _, a := range l.Attrs {
		value := a.Value.String()
		if value == "" || strings.ContainsAny(value, " \t\n\"=") {
			value = strconv.Quote(value)
		}
		b.WriteString(" " + a.Key + "=" + value)
	}
	return b.String()
}

// ParseLogLine parses a line of a plugin's stderr. A JSON object in the format of log/slog or
// go-hclog becomes a line with level and attributes. Any other text becomes the message of a
// line with time now and the attribute stream=stderr.
func ParseLogLine(text string, now time.Time) LogLine {
	printed := LogLine{Time: now, Level: slog.LevelWarn, Message: oneLine(text), Attrs: []slog.Attr{slog.String("stream", "stderr")}}
	d := json.NewDecoder(strings.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return printed
	}
	l := LogLine{Time: now}
	for d.More() {
		key, err := d.Token()
		var value any
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return printed
		}
		said, isText := value.(string)
		if !isText {
			raw, _ := json.Marshal(value) // cannot fail: it was decoded from JSON
			said = string(raw)
		}
		switch key {
		case slog.MessageKey, "@message":
			l.Message = oneLine(said)
		case slog.LevelKey, "@level":
			_ = l.Level.UnmarshalText([]byte(said)) // an unknown level stays info
		case slog.TimeKey, "@timestamp":
			if at, err := time.Parse(time.RFC3339Nano, said); err == nil {
				l.Time = at
			}
		default:
			if len(l.Attrs) < maxWords {
				l.Attrs = append(l.Attrs, slog.String(oneLine(key.(string)), oneLine(said))) // keys of JSON objects are strings
			}
		}
	}
	if l.Message == "" {
		return printed
	}
	return l
}

// LevelEnv is the environment variable that sets a plugin's log level: debug, info, warn or error. The default
// is info.
const LevelEnv = "POINTSMAN_LOG_LEVEL"

func logLevel() slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv(LevelEnv))); err != nil {
		return slog.LevelInfo
	}
	return level
}

// logQueue is the number of log lines that wait to be written.
const logQueue = 1024

// A logWriter writes lines to the process's original stderr. Write never blocks: while nobody
// reads that stderr, further lines are dropped and counted.
type logWriter struct {
	queue   chan []byte
	dropped atomic.Uint64
	written chan struct{} // closed when everything was written after close
}

// newLogWriter starts the goroutine that writes to w. It ends with close.
func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{queue: make(chan []byte, logQueue), written: make(chan struct{})}
	go func() {
		for line := range l.queue {
			if line == nil { // from close
				close(l.written)
				return
			}
			_, _ = w.Write(line) // there is no place to report the error
		}
	}()
	return l
}

// Write queues one line, which ends with a newline.
func (l *logWriter) Write(line []byte) (int, error) {
	select {
	case l.queue <- append([]byte(nil), line...):
	default:
		l.dropped.Add(1)
	}
	return len(line), nil
}

// close waits until the queued lines are written, for at most d.
func (l *logWriter) close(d time.Duration) {
	go func() { l.queue <- nil }() // ends with the process if nobody reads the log
	select {
	case <-l.written:
	case <-time.After(d):
	}
}

// capture replaces os.Stdout and os.Stderr by pipes whose lines go to log. It replaces
// go-plugin's own pipes, which nobody reads: a plugin that prints would block once they are
// full.
func capture(log *slog.Logger) {
	for name, file := range map[string]**os.File{"stdout": &os.Stdout, "stderr": &os.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			log.Error("cannot read what this plugin prints", "stream", name, "err", err)
			continue
		}
		*file = w
		go lines.Each(r, func(line string) { log.Warn(line, "stream", name) }) // ends with the process
	}
}

// maxValue limits a message or attribute in the log, in bytes.
const maxValue = 1 << 10

// logOptions returns options for the handler of the plugin's log. They convert all values to
// text and limit its length.
func logOptions() *slog.HandlerOptions {
	return &slog.HandlerOptions{Level: logLevel(), ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if text := a.Value.String(); a.Key != slog.TimeKey || len(groups) > 0 {
			a.Value = slog.StringValue(text[:min(len(text), maxValue)])
		}
		return a
	}}
}
