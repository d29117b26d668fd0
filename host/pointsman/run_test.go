// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// A part that does not end keeps the host from ending only so long; the dataplanes are
// waited for.
func TestPartsThatDoNotEnd(t *testing.T) {
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
	select {
	case <-ended:
		t.Fatal("ended without the dataplanes")
	case <-time.After(partLimit + partLimit/2):
	}
	close(slow)
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("waits for a part that does not end")
	}
	if !strings.Contains(said.String(), "parts=source") {
		t.Errorf("said %q", said.String())
	}
}
