// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"log/slog"
	"os"
	"slices"

	"github.com/pointsman/pointsman/internal/lines"
)

// LevelEnv is the environment variable that sets a plugin's log level: debug,
// info, warn or error. The default is info.
const LevelEnv = "POINTSMAN_LOG_LEVEL"

func logLevel() slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv(LevelEnv))); err != nil {
		return slog.LevelInfo
	}
	return level
}

// A ringHandler is what stands behind Setup.Log: it never waits and never fails.
type ringHandler struct {
	ring   *ring
	level  slog.Level
	prefix string      // of the open groups: "a.b."
	attrs  []slog.Attr // given by With
}

func newRingHandler(r *ring, level slog.Level) *ringHandler {
	return &ringHandler{ring: r, level: level}
}

func (h *ringHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *ringHandler) Handle(_ context.Context, r slog.Record) error {
	line := LogLine{Time: r.Time, Level: r.Level, Message: bounded(r.Message), Attrs: slices.Clip(h.attrs)}
	r.Attrs(func(a slog.Attr) bool {
		line.Attrs = appendAttr(line.Attrs, h.prefix, a)
		return len(line.Attrs) < maxAttrs
	})
	h.ring.add(line)
	return nil
}

func (h *ringHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.attrs = slices.Clip(h.attrs)
	for _, a := range attrs {
		with.attrs = appendAttr(with.attrs, h.prefix, a)
	}
	return &with
}

func (h *ringHandler) WithGroup(name string) slog.Handler {
	with := *h
	if name != "" {
		with.prefix = h.prefix + name + "."
	}
	return &with
}

// appendAttr adds a as strings, a group as its members: what is kept must not
// change any more, and needs no type.
func appendAttr(attrs []slog.Attr, prefix string, a slog.Attr) []slog.Attr {
	value := a.Value.Resolve()
	if value.Kind() != slog.KindGroup {
		if a.Key == "" {
			return attrs
		}
		return append(attrs, slog.String(prefix+a.Key, bounded(value.String())))
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, member := range value.Group() {
		attrs = appendAttr(attrs, prefix, member)
	}
	return attrs
}

// maxAttrs bounds a line's attributes; those beyond are left out.
const maxAttrs = 32

// bounded cuts what is too long to keep.
func bounded(s string) string {
	if len(s) > lines.Max {
		return s[:lines.Max] + "…"
	}
	return s
}
