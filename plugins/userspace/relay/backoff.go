// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"time"
)

// A backoff waits after errors that may pass, such as running out of file descriptors:
// longer each time, and logged once. Meanwhile clients wait in the kernel.
type backoff struct {
	relay *Relay
	at    string
	delay time.Duration // the next one; zero: the last attempt succeeded
}

const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
)

// next returns how long to wait because of err.
func (b *backoff) next(err error) time.Duration {
	if b.delay == 0 {
		b.delay = minBackoff
		b.relay.log.Load().Warn("cannot accept; backing off", "at", b.at, "err", err, "try", advice(err))
	}
	now := b.delay
	b.delay = min(2*b.delay, maxBackoff)
	return now
}

// wait sleeps because of err. It is false when ctx has ended.
func (b *backoff) wait(ctx context.Context, err error) bool {
	timer := time.NewTimer(b.next(err))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// reset says that an attempt succeeded.
func (b *backoff) reset() {
	if b.delay > 0 {
		b.delay = 0
		b.relay.log.Load().Info("accepting again", "at", b.at)
	}
}

func advice(err error) string {
	if outOfFiles(err) {
		return "raise the hard limit of open files of the plugin (ulimit -Hn, LimitNOFILE=)"
	}
	return ""
}

func outOfFiles(err error) bool { return errors.Is(err, errTooMany) || errors.Is(err, errTooManyAll) }
