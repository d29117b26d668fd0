// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/host/bounded"
)

const (
	maxFile = 1 << 20 // more than any file of settings needs

	// timeout is how long the file system has to answer: one that hangs, as NFS does
	// without its server, must keep neither the host nor a signal waiting.
	timeout = time.Second
)

// readFile reads the file at path for a host that starts.
func readFile(path string) ([]byte, error) {
	data, err := bounded.ReadFileWithin(path, maxFile, 5*timeout)
	return data, about(path, err)
}

// An answer is what a look at the file came to.
type answer struct {
	data []byte
	err  error
}

// read reads the file again while the host runs. A read without an answer goes on, and
// is the next look's, so that only one is ever under way.
func (f *Follower) read() ([]byte, error) {
	a, ok := f.calls.Do(f.path, timeout, func() answer {
		data, err := bounded.ReadFile(f.path, maxFile)
		return answer{data, err}
	})
	if !ok {
		a.err = errors.New("its file system does not answer")
	}
	return a.data, about(f.path, a.err)
}

func about(path string, err error) error {
	if err != nil {
		return fmt.Errorf("read config: %s: %w", path, err)
	}
	return nil
}

// hashOf tells one content from another; empty: there was no file.
func hashOf(data []byte) string {
	if data == nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}
