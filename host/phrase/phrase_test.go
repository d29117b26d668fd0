// SPDX-License-Identifier: Apache-2.0

package phrase

import (
	"slices"
	"testing"
	"time"
)

func TestPhrases(t *testing.T) {
	type word string
	for _, c := range []struct{ got, want string }{
		{List([]word{"a", "b"}), "a, b"},
		{List[word](nil), "nothing"},
		{Count(1, "Service"), "1 Service"},
		{Count(0, "Service"), "0 Services"},
		{Some([]word{"a", "b", "c", "d"}), "a, b, c and 1 more"},
		{Some([]word{"a"}), "a"},
		{AndMore(0), ""},
		{AndMore(2), " and 2 more"},
		{Round(1234567 * time.Nanosecond).String(), "1ms"},
		{Round(12345 * time.Millisecond).String(), "12.3s"},
		{Round(3*time.Hour + 1600*time.Millisecond).String(), "3h0m2s"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	if got := Texts([]time.Duration{time.Second}); !slices.Equal(got, []string{"1s"}) {
		t.Errorf("%q", got)
	}
	if got := Texts[time.Duration](nil); got == nil {
		t.Error("the result is nil, which is null in JSON")
	}
}

// TestSince: a time that is zero or in the future, after the clock was set back, gives no absurd number.
func TestSince(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{time.Time{}, "an unknown time"},
		{now.Add(time.Hour), "0s"},
		{now, "0s"},
		{now.Add(-1234 * time.Millisecond), "1.2s"},
		{now.Add(-90 * time.Minute), "1h30m0s"},
	} {
		if got := Since(c.at, now); got != c.want {
			t.Errorf("%v: %s, want %s", c.at, got, c.want)
		}
	}
}
