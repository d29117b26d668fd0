// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk/sdktest"
)

// TestBinaryConforms holds the real binary to the contract, as a host would start it.
func TestBinaryConforms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pointsman-dataplane-userspace")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "./pointsman-dataplane-userspace").CombinedOutput(); err != nil {
		t.Skipf("needs go to build the plugin: %v\n%s", err, out)
	}
	s := sdktest.Binary(path)
	s.Options = []byte(`{"redirect": "never", "udpIdleTimeout": "1m"}`)
	sdktest.Conform(sdktest.Testing(t), s)
}
