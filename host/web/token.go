// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// tokenBytes is how much of a token is random.
const tokenBytes = sha256.Size

// A tokenFile holds what a browser must know to see the pages: 64 hexadecimal digits. Its owner may
// read it, and the members of a group unless gid is negative.
type tokenFile struct {
	path string
	gid  int
}

// load returns the token, and makes it first where there is none, or one that others than the file
// is for could have read.
func (f tokenFile) load() (string, error) {
	if token := f.read(); token != "" {
		return token, f.give()
	}
	random := make([]byte, tokenBytes)
	_, _ = rand.Read(random) // it never fails
	token := hex.EncodeToString(random)
	if err := statefile.Write(f.path, []byte(token+"\n")); err != nil {
		return "", fmt.Errorf("write the token of the status page: %w", err)
	}
	return token, f.give()
}

// read returns the token that is in the file; empty: there is none that may be used.
func (f tokenFile) read() string {
	info, err := os.Lstat(f.path)
	if err != nil || info.Mode().Perm()&^f.mode() != 0 {
		return ""
	}
	text, err := statefile.Read(f.path)
	token := strings.TrimSpace(string(text))
	if random, bad := hex.DecodeString(token); err != nil || bad != nil || len(random) != tokenBytes {
		return ""
	}
	return token
}

func (f tokenFile) mode() fs.FileMode {
	if f.gid < 0 {
		return 0o600
	}
	return 0o640
}

// give lets the group read the file, if there is one.
func (f tokenFile) give() error {
	if f.gid >= 0 {
		if err := os.Chown(f.path, -1, f.gid); err != nil {
			return fmt.Errorf("let adminGroup read the token of the status page: %w", err)
		}
	}
	return os.Chmod(f.path, f.mode())
}
