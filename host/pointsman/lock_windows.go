// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// lockState creates the state directory and locks it for one host. Windows releases the lock when the
// process ends.
func lockState(dir string) (io.Closer, error) {
	if err := statefile.MakeDir(dir); err != nil {
		return nil, fmt.Errorf("create the state directory: %w; try: --state-dir DIR, or as an administrator", err)
	}
	f, err := statefile.TryLock(filepath.Join(dir, "host.lock"))
	if errors.Is(err, statefile.ErrLocked) {
		return nil, fmt.Errorf("the state directory cannot be locked (%s): %w; stop it, or set stateDir and adminSocket to others", dir, errInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the state directory: %w; try: --state-dir DIR, or as an administrator", err)
	}
	return f, nil
}
