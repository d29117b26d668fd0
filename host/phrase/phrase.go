// SPDX-License-Identifier: Apache-2.0

// Package phrase formats lists, counts and durations for people. Events and verbs use it, so that both use the same
// words. It depends on no other package.
package phrase

import (
	"fmt"
	"strings"
	"time"
)

// Texts returns the String of each value. The result is not nil.
func Texts[T fmt.Stringer](values []T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = v.String()
	}
	return list
}

// Plain converts named string types to string.
func Plain[S ~string](values []S) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// List joins values for a sentence.
func List[S ~string](values []S) string {
	if len(values) == 0 {
		return "nothing"
	}
	return strings.Join(Plain(values), ", ")
}

// Count returns a number with a noun: "1 Service", "3 Services".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Some lists the first three values, and the number of the others.
func Some[S ~string](values []S) string {
	n := min(3, len(values))
	return List(values[:n]) + AndMore(len(values)-n)
}

// AndMore returns text for n values that a list omits.
func AndMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// Since returns the rounded time from at until now. It is never negative, even if the clock was set back, and
// unknown if at is zero.
func Since(at, now time.Time) string {
	if at.IsZero() {
		return "an unknown time"
	}
	return Round(max(0, now.Sub(at))).String()
}

// Round rounds a duration to a readable precision.
func Round(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(time.Second / 10)
	}
	return d.Round(time.Second)
}

// OneLine joins the lines of a text, such as those of several errors.
func OneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
