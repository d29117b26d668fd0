// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// proof is how long a binary must have served to be the one to fall back to.
const proof = 10 * time.Minute

// goodFile returns where the last binary that proved itself is kept, under its hash: the
// one that is installed may be replaced by one that does not work.
func goodFile(stateDir string) string { return filepath.Join(stateDir, "good") }

// keepGood keeps a copy of the binary at path, unless it is the one that is kept.
func keepGood(stateDir, path string) error {
	sum, err := sumOf(path)
	if err != nil {
		return fmt.Errorf("keep the binary that works: %w", err)
	}
	if kept, err := os.Readlink(goodFile(stateDir)); err == nil && kept == "good-"+sum {
		return nil
	}
	before, _ := filepath.Glob(filepath.Join(stateDir, "good-*"))
	name := "good-" + sum
	if err := copyFile(path, filepath.Join(stateDir, name)); err != nil {
		return fmt.Errorf("keep the binary that works: %w", err)
	}
	next := goodFile(stateDir) + ".new"
	_ = os.Remove(next)
	if err := errors.Join(os.Symlink(name, next), os.Rename(next, goodFile(stateDir))); err != nil {
		return fmt.Errorf("keep the binary that works: %w", err)
	}
	for _, old := range before {
		if filepath.Base(old) != name {
			_ = os.Remove(old)
		}
	}
	return nil
}

// lastGood returns the binary that proved itself, with its hash; none if it is the very
// one at path, or is not what was kept, or cannot be run by its hash, as a script cannot.
func lastGood(stateDir, path string) (good, sum string) {
	name, err := os.Readlink(goodFile(stateDir))
	if err != nil {
		return "", ""
	}
	good, sum = filepath.Join(stateDir, name), strings.TrimPrefix(name, "good-")
	binary, err := launch.OpenBinary(good, sum)
	if err != nil {
		return "", ""
	}
	binary.Close()
	if now, err := sumOf(path); err == nil && now == sum {
		return "", ""
	}
	return good, sum
}

// good returns the plugin by the binary that proved itself, and by no other content.
func (p Plugin) good() Plugin {
	p.Path, p.SHA256 = lastGood(p.StateDir, p.Path)
	return p
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return statefile.Replace(to, 0o700, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}
