// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"time"
)

// A pause is what one who takes in does about an error that may pass, such as
// running out of file descriptors: it waits, longer each time, and says so once.
type pause struct {
	log  *relay
	at   place
	next time.Duration // zero: all is well
}

const (
	shortPause = 5 * time.Millisecond
	longPause  = time.Second
)

// begin is how long to wait because of err.
func (p *pause) begin(err error) time.Duration {
	if p.next == 0 {
		p.next = shortPause
		p.log.log.Load().Warn("cannot take in what comes; waiting", "at", p.at.String(), "err", err, "try", advice(err))
	}
	now := p.next
	p.next = min(2*p.next, longPause)
	return now
}

// after waits out err, and is false when ctx has ended.
func (p *pause) after(ctx context.Context, err error) bool {
	timer := time.NewTimer(p.begin(err))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// over says that things work again.
func (p *pause) over() {
	if p.next > 0 {
		p.next = 0
		p.log.log.Load().Info("taking in again what comes", "at", p.at.String())
	}
}

func advice(err error) string {
	if outOfFiles(err) {
		return "raise the hard limit of open files of the plugin (ulimit -Hn, LimitNOFILE=)"
	}
	return ""
}

func outOfFiles(err error) bool { return errors.Is(err, errTooMany) || errors.Is(err, errTooManyAll) }
