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

// Write makes a folder with the files. One that is there has to be empty; an error leaves what was
// written before it.
func Write(dir string, all []File) error {
	there, err := os.ReadDir(dir)
	switch {
	case err == nil && len(there) > 0:
		return fmt.Errorf("%s is there already and not empty; try: another name, or another folder to begin from", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("make %s: %w", dir, err)
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

// FreePorts returns ports that are free on every address of this machine now, below those that the
// kernel gives to callers.
func FreePorts() (ports [NumPorts]int, err error) {
	const first, count, tries = 10240, 16384, 1000
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close() // it has nothing to lose
		}
	}()
	for range tries {
		l, err := net.Listen("tcp", ":"+strconv.Itoa(first+rand.IntN(count)))
		if err != nil {
			continue
		}
		held = append(held, l) // until all are found, so that none is found twice
		ports[len(held)-1] = l.Addr().(*net.TCPAddr).Port
		if len(held) == NumPorts {
			return ports, nil
		}
	}
	return ports, fmt.Errorf("find ports that are free: of %d between %d and %d only %d were", tries, first, first+count, len(held))
}
