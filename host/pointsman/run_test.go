// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/test/eventually"
)

// TestPartsThatDoNotEnd: the host waits for partLimit for a part that does not end, and without limit for the
// dataplanes.
func TestPartsThatDoNotEnd(t *testing.T) { synctest.Test(t, partsThatDoNotEnd) }

func partsThatDoNotEnd(t *testing.T) {
	var said strings.Builder
	log := hclog.New(&hclog.LoggerOptions{Output: &said})
	ctx, cancel := context.WithCancel(t.Context())
	stuck, slow := make(chan struct{}), make(chan struct{})
	defer close(stuck)
	parts := map[string]func(context.Context) error{
		"source":     func(context.Context) error { <-stuck; return nil },
		"admin":      func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"dataplanes": func(ctx context.Context) error { <-ctx.Done(); <-slow; return nil },
	}
	ended := make(chan struct{})
	go func() { runParts(ctx, log, parts, "dataplanes"); close(ended) }()
	cancel()
	eventually.Pass(2 * partLimit)
	select {
	case <-ended:
		t.Fatal("ended without the dataplanes")
	default:
	}
	close(slow)
	<-ended
	if !strings.Contains(said.String(), "parts=source") {
		t.Errorf("said %q", said.String())
	}
}
