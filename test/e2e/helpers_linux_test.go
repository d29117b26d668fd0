// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"time"
)

// cleanupContext returns a context for the cleanup after a test.
func cleanupContext() (context.Context, func()) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
