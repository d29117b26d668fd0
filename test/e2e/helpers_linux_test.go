// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"time"
)

// afterwards is a context for what cleans up after a test.
func afterwards() (context.Context, func()) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
