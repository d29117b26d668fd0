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
		t.Error("no values are no list; JSON would say null")
	}
}
