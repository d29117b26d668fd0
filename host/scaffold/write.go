// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Write creates a folder with the files. An existing folder must be empty. After an error the files that were
// written before it remain.
func Write(dir string, all []File) error {
	there, err := os.ReadDir(dir)
	switch {
	case err == nil && len(there) > 0:
		return fmt.Errorf("%s exists and is not empty; try: another name, or another working directory", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("create %s: %w", dir, err)
	}
	for _, f := range all {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		mode := fs.FileMode(0o644)
		if f.Executable {
			mode = 0o755
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.Text, mode)); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

// FreePorts returns ports that are free on all addresses of this machine, below the range from which the kernel
// chooses ports of clients.
func FreePorts() (ports [NumPorts]int, err error) {
	const first, count, tries = 10240, 16384, 1000
	for i := range ports {
		for n := 0; ports[i] == 0; n++ {
			l, err := net.Listen("tcp", ":"+strconv.Itoa(first+rand.IntN(count)))
			if err == nil {
				defer l.Close() // when all are found, so that no port is chosen twice
				ports[i] = l.Addr().(*net.TCPAddr).Port
			} else if n == tries {
				return ports, fmt.Errorf("find a free port between %d and %d: %w", first, first+count, err)
			}
		}
	}
	return ports, nil
}
