// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// TestRecorderConforms: a Recorder conforms over the wire, like a plugin.
func TestRecorderConforms(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // guards live
	var live *Recorder
	s := InProcess((&Recorder{}).description(), func() sdk.Dataplane {
		mu.Lock()
		defer mu.Unlock()
		live = new(Recorder)
		return live
	})
	s.Testbed = Said(func(sdk.Dataplane) Sender {
		mu.Lock()
		defer mu.Unlock()
		return live
	})
	Conform(t, s)
}

// TestBareRecorderConforms: a Recorder conforms without Serve.
func TestBareRecorderConforms(t *testing.T) {
	t.Parallel()
	Conform(t, bare(func(r *Recorder) sdk.Dataplane { return r }))
}

// bare returns a Subject that is called directly. breaks may replace the Recorder.
func bare(breaks func(*Recorder) sdk.Dataplane) Subject {
	var mu sync.Mutex // guards live
	var live *Recorder
	return Subject{
		Start: func(context.Context, string) (sdk.Dataplane, error) {
			mu.Lock()
			defer mu.Unlock()
			live = new(Recorder)
			return breaks(live), nil
		},
		Timeout: time.Second,
		Testbed: Said(func(dp sdk.Dataplane) Sender {
			if s, ok := dp.(Sender); ok {
				return s
			}
			mu.Lock()
			defer mu.Unlock()
			return live
		}),
	}
}

// TestReportWithoutTestbed: a dataplane does not conform if a needed check was not run.
func TestReportWithoutTestbed(t *testing.T) {
	s := bare(func(r *Recorder) sdk.Dataplane { return r })
	s.Testbed = nil
	s.Only = regexp.MustCompile("C01/packets|C03/full-twice").MatchString
	report, err := Check(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if report.Conforms() || report.Count(NotRun) != 1 || report.Count(Pass) != 1 {
		t.Errorf("without a testbed, the report is %s", report)
	}
}
