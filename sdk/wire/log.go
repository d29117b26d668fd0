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

// String returns the line as people read it.
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

// ParseLogLine reads a line of a plugin's stderr. A JSON object as log/slog writes it, or as go-hclog does,
// becomes a line with level and attributes. Anything else is the message of a line that was printed at now,
// with the attribute stream=stderr.
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
			raw, _ := json.Marshal(value) // it was read as JSON just now
			said = string(raw)
		}
		switch key {
		case slog.MessageKey, "@message":
			l.Message = oneLine(said)
		case slog.LevelKey, "@level":
			_ = l.Level.UnmarshalText([]byte(said)) // of another word it stays info
		case slog.TimeKey, "@timestamp":
			if at, err := time.Parse(time.RFC3339Nano, said); err == nil {
				l.Time = at
			}
		default:
			if len(l.Attrs) < maxWords {
				l.Attrs = append(l.Attrs, slog.String(oneLine(key.(string)), oneLine(said))) // an object's keys are strings
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

// logQueue is how many lines of a plugin's log wait to be written.
const logQueue = 1024

// A logWriter writes lines to the stderr that the process was started with. A Write never waits: while nothing
// reads that stderr, further lines are dropped and counted.
type logWriter struct {
	queue   chan []byte
	dropped atomic.Uint64
	quit    chan struct{} // closed by close
	written chan struct{} // closed when everything is written after that
}

// newLogWriter starts the goroutine that writes to w. It ends with close.
func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{queue: make(chan []byte, logQueue), quit: make(chan struct{}), written: make(chan struct{})}
	go func() {
		defer close(l.written)
		for {
			select {
			case line := <-l.queue:
				_, _ = w.Write(line) // nothing else could be told of it
				continue
			default:
			}
			select {
			case line := <-l.queue:
				_, _ = w.Write(line)
			case <-l.quit:
				return
			}
		}
	}()
	return l
}

// Write takes one line, which ends with a newline.
func (l *logWriter) Write(line []byte) (int, error) {
	select {
	case l.queue <- append([]byte(nil), line...):
	default:
		l.dropped.Add(1)
	}
	return len(line), nil
}

// close waits until the lines in the queue are written, at most for d.
func (l *logWriter) close(d time.Duration) {
	close(l.quit)
	select {
	case <-l.written:
	case <-time.After(d):
	}
}

// capture replaces os.Stdout and os.Stderr by pipes whose lines go to log. go-plugin's own pipes, which stand there
// until then, have no reader: a plugin that prints would block once they are full.
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

// maxValue bounds a message or an attribute in the log, in bytes.
const maxValue = 1 << 10

// logOptions are for a handler of the plugin's log. It makes texts of all values and bounds them.
func logOptions() *slog.HandlerOptions {
	return &slog.HandlerOptions{Level: logLevel(), ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if text := a.Value.String(); a.Key != slog.TimeKey || len(groups) > 0 {
			a.Value = slog.StringValue(text[:min(len(text), maxValue)])
		}
		return a
	}}
}
