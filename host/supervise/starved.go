// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/pointsman/pointsman/internal/descriptors"
)

// IsStarved reports whether err says that this process, or the machine, has no descriptor, no
// memory or no process left: what failed is not to blame.
func IsStarved(err error) bool {
	if fork := new(os.PathError); errors.As(err, &fork) && fork.Op == "fork/exec" && errors.Is(fork, syscall.EAGAIN) {
		return true // no process may be added
	}
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOBUFS)
}

// explained returns err; where it is of a shortage, with the host's limit of descriptors.
func explained(err error) error {
	if !IsStarved(err) {
		return err
	}
	return fmt.Errorf("the host is short of descriptors or memory (RLIMIT_NOFILE is %d), which is not the plugin's fault: %w", descriptors.Limit(), err)
}
