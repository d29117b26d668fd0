// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/pointsman/pointsman/internal/descriptors"
)

// IsStarved reports whether err means that this process or the machine has run out of file
// descriptors, memory or processes. Then the operation that failed is not at fault.
func IsStarved(err error) bool {
	if fork := new(os.PathError); errors.As(err, &fork) && fork.Op == "fork/exec" && errors.Is(fork, syscall.EAGAIN) {
		return true // the limit of processes is reached
	}
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOBUFS)
}

// explained returns err. For a shortage it adds the host's limit of file descriptors.
func explained(err error) error {
	if !IsStarved(err) {
		return err
	}
	return fmt.Errorf("the host is short of descriptors or memory (RLIMIT_NOFILE is %d), which is not the plugin's fault: %w", descriptors.Limit(), err)
}
