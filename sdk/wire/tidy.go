// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"runtime/debug"
	"sync"
	"time"
)

// much is how many Services make what was needed to follow them worth a collection of its
// own.
const much = 1000

// tidyAfter is how long after that many Services memory is given back to the system: many
// more may follow, and one collection is enough for all of them.
const tidyAfter = 10 * time.Second

// A tidier gives memory back to the system once an update, or many small ones, have left
// much garbage. Go itself collects it when as much again has been made, and then keeps
// most of the pages: after a day of many changes a plugin held three times of what it
// needs.
type tidier struct {
	after time.Duration
	free  func()

	mu    sync.Mutex  // guards what follows
	count int         // Services since memory was given back
	timer *time.Timer // until it is; nil: it is not due
}

func newTidier() *tidier { return &tidier{after: tidyAfter, free: debug.FreeOSMemory} }

// took counts the Services of an update that is over, however it ended.
func (t *tidier) took(services int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count += services; t.count >= much && t.timer == nil {
		t.timer = time.AfterFunc(t.after, t.tidy)
	}
}

// tidy gives memory back, now.
func (t *tidier) tidy() {
	t.stop()
	t.free()
}

// stop has memory given back no more for what was counted so far.
func (t *tidier) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
	t.count, t.timer = 0, nil
}
