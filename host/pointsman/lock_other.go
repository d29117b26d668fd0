// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// lockState makes the state directory. That one host at a time uses it is left to
// the admin socket here.
func lockState(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w; try: --state-dir DIR", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "host.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state directory: %w; try: --state-dir DIR", err)
	}
	return f, nil
}
