// SPDX-License-Identifier: Apache-2.0

package launch

import "fmt"

// executed returns the path to execute: the open file itself. It is closed when the
// program begins, which is why a script's interpreter needs the path.
func (b *Binary) executed() string {
	if b.script {
		return b.path
	}
	return fmt.Sprintf("/proc/self/fd/%d", b.file.Fd())
}
