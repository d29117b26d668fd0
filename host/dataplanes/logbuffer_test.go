// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

func TestLogBuffer(t *testing.T) {
	b := newLogBuffer()
	for i := range bufferLines + 5 {
		b.add(admin.LogLine{Message: fmt.Sprint(i)})
	}
	var first, last string
	n := 0
	err := b.read(t.Context(), false, func(l admin.LogLine) error {
		if n == 0 {
			first = l.Message
		}
		last = l.Message
		n++
		return nil
	})
	if err != nil || n != bufferLines || first != "5" || last != fmt.Sprint(bufferLines+4) {
		t.Errorf("%d lines from %s to %s, %v", n, first, last, err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go b.add(admin.LogLine{Message: "later"})
	if err := b.read(ctx, true, func(l admin.LogLine) error {
		if l.Message == "later" {
			cancel()
		}
		return nil
	}); err != nil || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("following: %v, %v", err, ctx.Err())
	}
}
