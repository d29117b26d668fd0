// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

func unsound(u sdk.Update) bool {
	return slices.ContainsFunc(u.Set, func(s sdk.Service) bool { return s.Check() != nil })
}

func errForOne(b *brokenRecorder) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		if unsound(u) {
			return sdk.Result{}, &sdk.Refusal{Why: "one is bad"}
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func hangForOne(b *brokenRecorder) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		if unsound(u) {
			<-ctx.Done()
			return sdk.Result{}, ctx.Err()
		}
		return b.Recorder.Sync(ctx, u)
	}
}

// stall ignores its context and takes too long. A check measures that in real time.
func stall(d time.Duration) { time.Sleep(d) }

func ignoreContext(b *brokenRecorder) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		if ctx.Err() != nil {
			stall(grace + time.Second)
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func renderAll(b *brokenRecorder) {
	born := time.Now()
	var everything time.Duration // longer than a Full takes the suite, also on a busy machine
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		r, err := b.Recorder.Sync(ctx, u)
		if u.Full {
			everything = time.Since(born) + time.Second
			return r, err
		}
		stall(everything)
		return r, err
	}
}

// errIf breaks Sync for some updates.
func errIf(b *brokenRecorder, bad func(sdk.Update) bool) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		if bad(u) {
			return sdk.Result{}, errors.New("the mistake")
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func errTwice(b *brokenRecorder) {
	errIf(b, func(u sdk.Update) bool { return u.Full && len(b.Services()) > 0 })
}

func errDeltaTwice(b *brokenRecorder) {
	errIf(b, func(u sdk.Update) bool { return !u.Full && len(b.Services()) > 0 })
}

func errNobody(b *brokenRecorder) {
	errIf(b, func(u sdk.Update) bool {
		return slices.ContainsFunc(u.Delete, func(name sdk.Name) bool { return name.Service == "never" })
	})
}

func errDraining(b *brokenRecorder) {
	errIf(b, func(sdk.Update) bool { return b.Role() == sdk.Draining })
}

// ignoreEnd ignores the end of its context if an update is large.
func ignoreEnd(b *brokenRecorder) {
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		if len(u.Set) > 1000 {
			stall(grace + 2*time.Second)
		}
		return b.Recorder.Sync(ctx, u)
	}
}

func busyInspect(b *brokenRecorder) {
	asked := make(chan struct{}, 1)
	b.sync = func(ctx context.Context, u sdk.Update) (sdk.Result, error) {
		if !u.Full {
			<-asked // Sync lasts until Inspect is called
		}
		return b.Recorder.Sync(ctx, u)
	}
	b.inspect = func(context.Context, func(sdk.Served) error) error {
		select {
		case asked <- struct{}{}:
		default:
		}
		return errors.New("busy")
	}
}

// inspectActive makes Inspect name only what is served now, so nothing in other roles than Active.
func inspectActive(b *brokenRecorder) {
	b.inspect = func(ctx context.Context, f func(sdk.Served) error) error {
		if b.Role() != sdk.Active {
			return nil
		}
		return b.Recorder.Inspect(ctx, f)
	}
}
