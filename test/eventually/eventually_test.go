// SPDX-License-Identifier: Apache-2.0

package eventually

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// after is a check that finds nothing wrong once d has passed, and counts how often it was
// asked.
func after(d time.Duration, asked *int) func() error {
	began := time.Now()
	return func() error {
		if *asked++; time.Since(began) < d {
			return fmt.Errorf("%d times", *asked)
		}
		return nil
	}
}

func TestTry(t *testing.T) {
	for _, tc := range []struct {
		name        string
		takes       time.Duration
		took        time.Duration // until Try returns
		least, most int           // how often it asks
		fails       bool
	}{
		{"what is so is asked once", 0, 0, 1, 1, false},
		{"what takes a moment is seen at once", 2 * time.Millisecond, 3 * time.Millisecond, 3, 3, false},
		{"what takes long is not asked all the time", 10 * time.Second, 10 * time.Second, 200, 210, false},
		{"what is never so ends with what was wrong last", time.Hour, time.Minute, 1200, 1210, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked int
				began := time.Now()
				err := Try(time.Minute, after(tc.takes, &asked))
				if took := time.Since(began); took < tc.took || took > tc.took+longestPause {
					t.Errorf("it took %s, want %s", took, tc.took)
				}
				if asked < tc.least || asked > tc.most {
					t.Errorf("it asked %d times, want %d to %d", asked, tc.least, tc.most)
				}
				if want := fmt.Sprintf("%d times", asked); (err != nil) != tc.fails || err != nil && err.Error() != want {
					t.Errorf("it ended with %v, want %q: %t", err, want, tc.fails)
				}
			})
		})
	}
}

// TestTryOnceMore: a machine that ran something else until the limit had passed has not shown
// that the check fails.
func TestTryOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		err := Try(time.Second, func() error {
			if asked++; asked == 1 {
				time.Sleep(time.Hour) // as if this process were not run
				return errors.New("not yet")
			}
			return nil
		})
		if err != nil || asked != 2 {
			t.Errorf("asked %d times, it ended with %v", asked, err)
		}
	})
}

func TestFinal(t *testing.T) {
	exited, asked := errors.New("it exited"), 0
	err := Try(time.Hour, func() error { asked++; return Final(exited) })
	if err != exited || asked != 1 {
		t.Errorf("asked %d times, it ended with %v", asked, err)
	}
	if err := Final(nil); err != nil {
		t.Errorf("no error at all is %v", err)
	}
}

// A fatal is a test that says how it was ended.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Helper()                           {}
func (f *fatal) Fatalf(format string, args ...any) { f.said = fmt.Sprintf(format, args...) }

func TestSaysWhatWasWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, wait := range map[string]func(testing.TB){
			"the sun rises: not within 1s: it is dark": func(t testing.TB) {
				SucceedsWithin(t, time.Second, "the sun rises", func() error { return errors.New("it is dark") })
			},
			"the sun rises: not within 2m0s: it is not so": func(t testing.TB) { True(t, "the sun rises", func() bool { return false }) },
			"": func(t testing.TB) {
				True(t, "the sun rises", func() bool { return true })
				Succeeds(t, "the sun rises", func() error { return nil })
			},
		} {
			var f fatal
			if wait(&f); f.said != want {
				t.Errorf("it says %q, want %q", f.said, want)
			}
		}
	})
}
