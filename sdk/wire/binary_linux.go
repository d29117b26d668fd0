// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"os"
	"path/filepath"
)

// executed is the path to execute: the open file itself. It is closed when the
// program begins, which is why a script's interpreter needs the path.
func (b *Binary) executed() string {
	if b.script {
		return b.path
	}
	return fmt.Sprintf("/proc/self/fd/%d", b.file.Fd())
}

// takeName gives this process the name that ps shows: executed by its descriptor,
// it was called by that number.
func takeName() {
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0) // nothing depends on it
}
