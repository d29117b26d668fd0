// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"os"
	"syscall"
)

// exhausted reports whether err says that this process, or the machine, has no descriptor, no
// memory or no process left: what failed is not to blame.
func exhausted(err error) bool {
	if fork := new(os.PathError); errors.As(err, &fork) && fork.Op == "fork/exec" && errors.Is(fork, syscall.EAGAIN) {
		return true // no process may be added
	}
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOBUFS)
}
