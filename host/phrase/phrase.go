// SPDX-License-Identifier: Apache-2.0

// Package phrase says lists, counts and times in the words of an
// operator. The host's events and its verbs name the same things, and so use the same words.
package phrase

import (
	"fmt"
	"strings"
	"time"
)

// Texts returns values as their String says them; no values are an empty list.
func Texts[T fmt.Stringer](values []T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = v.String()
	}
	return list
}

// Plain returns named strings as plain ones.
func Plain[S ~string](values []S) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// List returns a list in a sentence.
func List[S ~string](values []S) string {
	if len(values) == 0 {
		return "nothing"
	}
	return strings.Join(Plain(values), ", ")
}

// Count returns a number of things: "1 Service", "3 Services".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// AndMore follows the first of a list when n are not said.
func AndMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// Since returns the time from at until now, fit to be read. A clock that was set back makes none
// negative; where at is not known, neither is the time.
func Since(at, now time.Time) string {
	if at.IsZero() {
		return "an unknown time"
	}
	return Round(max(0, now.Sub(at))).String()
}

// Round makes a time fit to be read.
func Round(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(time.Second / 10)
	}
	return d.Round(time.Second)
}
