// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestParseLogLine checks JSON of slog and hclog, and other text.
func TestParseLogLine(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for said, want := range map[string]string{
		`{"time":"2026-01-02T03:04:06Z","level":"ERROR","msg":"no room","n":3,"a":{"b":"c d"}}`:          `2026-01-02T03:04:06Z ERROR no room n=3 a="{\"b\":\"c d\"}"`,
		`{"@level":"debug","@message":"begun","@timestamp":"2026-01-02T03:04:06.000000Z","@module":"x"}`: `2026-01-02T03:04:06Z DEBUG begun @module=x`,
		`{"level":"loud","msg":"x"}`:     `2026-01-02T03:04:05Z INFO x`,
		`{"@message":5}`:                 `2026-01-02T03:04:05Z INFO 5`,
		`{"@level":{},"@timestamp":[1]}`: `2026-01-02T03:04:05Z WARN {"@level":{},"@timestamp":[1]} stream=stderr`,
		`{"msg":"cut`:                    `2026-01-02T03:04:05Z WARN {"msg":"cut stream=stderr`,
		"panic: oh\x1b[2J":               "2026-01-02T03:04:05Z WARN panic: oh\uFFFD[2J stream=stderr",
		`{"msg":"two\nlines\u001b[2J"}`:  "2026-01-02T03:04:05Z INFO two lines\uFFFD[2J",
		"":                               `2026-01-02T03:04:05Z WARN  stream=stderr`,
	} {
		if got := ParseLogLine(said, now).String(); got != want {
			t.Errorf("%q\n got %s\nwant %s", said, got, want)
		}
	}
}

// TestLogLineSurvives checks that a line with a group arrives, with values of limited length.
func TestLogLineSurvives(t *testing.T) {
	var b strings.Builder
	log := slog.New(slog.NewJSONHandler(&b, logOptions()))
	log.With("who", "me").WithGroup("g").Warn("a \"quoted\"\nline", "err", io.EOF, "long", strings.Repeat("x", 4<<10))
	got := ParseLogLine(b.String(), time.Now())
	if got.Level != slog.LevelWarn || got.Message != "a \"quoted\" line" || len(got.Attrs) != 2 || got.Attrs[0].String() != "who=me" {
		t.Errorf("got %s", got)
	}
	if group := got.Attrs[1].Value.String(); !strings.Contains(group, `"err":"EOF"`) || len(group) > 2*maxValue {
		t.Errorf("the group is %s", group)
	}
}

// TestLogDoesNotBlock checks that a log drops and counts lines if nobody reads them.
func TestLogDoesNotBlock(t *testing.T) {
	r, w := io.Pipe() // nobody reads yet
	l := newLogWriter(w)
	for range logQueue + 100 {
		if _, err := l.Write([]byte("line\n")); err != nil {
			t.Fatal(err)
		}
	}
	if lost := l.dropped.Load(); lost < 99 || lost > 100 { // the writer may have taken one
		t.Errorf("%d lines were dropped, want 100", lost)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }() // ends with r
	l.close(time.Minute)
	if left := len(l.queue); left != 0 {
		t.Errorf("%d lines are left", left)
	}
	r.Close()
}

func FuzzParseLogLine(f *testing.F) {
	for _, said := range []string{`{"msg":"x"}`, `{`, `{"a":[{}],"msg":null}`, "\xff", `{"":""}`} {
		f.Add(said)
	}
	f.Fuzz(func(t *testing.T, said string) {
		if got := ParseLogLine(said, time.Unix(0, 0)).String(); strings.ContainsAny(got, "\n\x1b") {
			t.Errorf("%q became %q", said, got)
		}
	})
}
