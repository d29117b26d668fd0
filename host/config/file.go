// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// maxFile is more than any file of settings needs.
const maxFile = 1 << 20

// readFile reads the file at path. It never waits: a pipe is no file.
func readFile(path string) ([]byte, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	if !stat.Mode().IsRegular() {
		return nil, fmt.Errorf("read config: %s is no file but a %s", path, kindOf(stat.Mode()))
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("read config: %s is larger than 1 MiB, which no config is", path)
	}
	return data, nil
}

func kindOf(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "folder"
	case mode&os.ModeNamedPipe != 0:
		return "pipe"
	case mode&os.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// hashOf tells one content from another; empty: there was no file.
func hashOf(data []byte) string {
	if data == nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}
